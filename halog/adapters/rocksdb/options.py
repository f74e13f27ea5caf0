"""This module tunes RocksDB: small, because several nodes share a 2-core machine. Each value stands with its reason."""

from __future__ import annotations

import rocksdict

MIB = 1 << 20


def options() -> rocksdict.Options:
    """Return the options of every store of halog; on disk they are compatible with RocksDB's defaults."""
    o = rocksdict.Options(raw_mode=True)
    o.create_if_missing(True)
    o.set_paranoid_checks(True)  # damage is told, never read around
    o.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())  # a torn last write is cut: the log has it
    o.set_write_buffer_size(16 * MIB)  # two of them: 32 MiB per node at most
    o.set_max_write_buffer_number(2)
    o.set_memtable_whole_key_filtering(True)  # what is in memory has a bloom filter too: an absent key costs half
    o.set_memtable_prefix_bloom_ratio(0.02)  # of its size: 0.3 MiB, 13 bits an entry or more
    o.set_max_background_jobs(2)  # one flush, one compaction
    o.set_max_total_wal_size(64 * MIB)
    o.set_max_open_files(256)
    o.set_keep_log_file_num(2)  # RocksDB's own chatter
    o.set_max_log_file_size(MIB)
    o.set_stats_dump_period_sec(0)
    o.set_is_fd_close_on_exec(True)
    o.set_compression_type(rocksdict.DBCompressionType.lz4())
    o.set_block_based_table_factory(_table())
    return o


def _table() -> rocksdict.BlockBasedOptions:
    t = rocksdict.BlockBasedOptions()
    t.set_bloom_filter(10, False)  # 1 % false positives: a look-up of an absent key rarely reads a block
    t.set_block_cache(rocksdict.Cache(32 * MIB))
    t.set_cache_index_and_filter_blocks(False)  # kept out of the cache, so that scans cannot push them out
    t.set_checksum_type(rocksdict.ChecksumType.xxh3())
    return t


def write_options() -> rocksdict.WriteOptions:
    """Return options to write with the write-ahead log always, handed to the operating system."""
    return rocksdict.WriteOptions()


def moved() -> rocksdict.IngestExternalFileOptions:
    """Return options for a table that is the store's from then on: taken in by a link, not copied."""
    o = rocksdict.IngestExternalFileOptions()
    o.set_move_files(True)
    return o
