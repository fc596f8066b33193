//! The binary map that a BFC pool writes where `TF_BFC_MEMORY_DUMP` is set: XLA's `MemoryDump` message
//! (`xla/tsl/protobuf/bfc_memory_map.proto`).

use prost::Message as _;

use super::LoggedChunk;
use super::dump_line::{DumpLine, PoolStats};
use super::log::Log;
use super::message::Message;
use super::number::Size;
use crate::allocator::ChunkTag;

#[derive(Clone, PartialEq, prost::Message)]
struct MemoryDump {
    #[prost(string, tag = "1")]
    allocator_name: String,
    #[prost(message, repeated, tag = "3")]
    chunk: Vec<MemChunk>,
    #[prost(message, optional, tag = "5")]
    stats: Option<MemAllocatorStats>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MemChunk {
    #[prost(uint64, tag = "1")]
    address: u64,
    #[prost(int64, tag = "2")]
    size: i64,
    #[prost(int64, tag = "3")]
    requested_size: i64,
    #[prost(bool, tag = "8")]
    in_use: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
struct MemAllocatorStats {
    #[prost(int64, tag = "2")]
    bytes_in_use: i64,
    #[prost(int64, tag = "3")]
    peak_bytes_in_use: i64,
}

impl Log {
    /// Makes a log of the binary map of a pool; `None` where the bytes are none. The map does not say which
    /// request failed.
    pub fn from_memory_dump(bytes: &[u8], source: impl Into<String>) -> Option<Log> {
        let dump = MemoryDump::decode(bytes).ok()?;
        if dump.allocator_name.is_empty()
            || !dump.allocator_name.is_ascii()
            || dump.chunk.is_empty()
        {
            return None;
        }
        let mut chunks = dump.chunk;
        chunks.sort_by_key(|chunk| chunk.address);
        let size = |chunk: &MemChunk| u64::try_from(chunk.size).ok();
        let mut log = Log::new(source.into());
        log.push(0, format!("memory map of {}", dump.allocator_name), Message::MemoryMap);
        let mut at = 0;
        while at < chunks.len() {
            // Chunks that follow each other are of one region.
            let ends =
                |chunk: &MemChunk| size(chunk).and_then(|bytes| chunk.address.checked_add(bytes));
            let length = 1 + chunks[at..]
                .windows(2)
                .take_while(|pair| ends(&pair[0]) == Some(pair[1].address))
                .count();
            let region = &chunks[at..at + length];
            let mut sizes = region.iter().map(size);
            let bytes = sizes.try_fold(0_u64, |sum, bytes| sum.checked_add(bytes?));
            log.push_dump_line(DumpLine::Region { bytes: bytes? });
            for chunk in region {
                log.push_dump_line(DumpLine::Chunk(LoggedChunk {
                    address: chunk.address,
                    bytes: size(chunk)?,
                    in_use: chunk.in_use,
                    tag: ChunkTag::Lower,
                }));
            }
            at += length;
        }
        let exact = |bytes: i64| u64::try_from(bytes).ok().map(Size::exact);
        if let Some(stats) = dump.stats {
            log.push_dump_line(DumpLine::Stats(PoolStats {
                limit: None,
                in_use: exact(stats.bytes_in_use),
                peak_in_use: exact(stats.peak_bytes_in_use),
                largest_free_block: None,
            }));
        }
        log.finish();
        Some(log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(chunks: &[(u64, i64)]) -> Vec<u8> {
        let chunk = |&(address, size): &(u64, i64)| MemChunk {
            address,
            size,
            requested_size: size,
            in_use: true,
        };
        let dump = MemoryDump {
            allocator_name: "GPU_0_bfc".to_owned(),
            chunk: chunks.iter().map(chunk).collect(),
            stats: None,
        };
        dump.encode_to_vec()
    }

    #[test]
    fn chunks_beyond_all_addresses_are_no_map() {
        let huge = encoded(&[(0, i64::MAX), (i64::MAX as u64, i64::MAX), (u64::MAX - 1, i64::MAX)]);
        assert!(Log::from_memory_dump(&huge, "").is_none());
        assert!(Log::from_memory_dump(&encoded(&[(256, 512)]), "").is_some());
    }
}
