//! How a page lies in its file.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0–8 | `VRAMFIT` and the version of this layout, 1 |
//! | 8–12 | length of the header |
//! | 12–16 | where the live part begins, a multiple of 64 |
//! | 16–20 | 64-bit words of a device's record |
//! | 20–24 | number of records |
//! | 24– | the header, as JSON |
//! | live part | words: sequence, heartbeat, samples, spent, then the records |
//!
//! All numbers are little-endian. Everything before the live part is complete before the file has its
//! name, and never changes. The live part is a seqlock: the sequence is odd while it is written, and
//! has changed when it was written meanwhile. A record may grow at its end; its length is told.

use crate::published::{Header, Live, Sample, StatsStatus};
use crate::{Error, ErrorKind, Result};

const MAGIC: &[u8; 8] = b"VRAMFIT\x01";
const HEAD_BYTES: usize = 24;
const LIVE_WORDS: usize = 4;
const RECORD_WORDS: usize = 10;
/// More than any machine has; what is beyond is not a page of ours.
const MAX_DEVICES: usize = 1024;
const MAX_BYTES: usize = 1 << 20;

/// Where the parts of one page lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Where the live part begins.
    pub live_offset: usize,
    /// Number of records.
    pub devices: usize,
    /// Words of one record.
    record_words: usize,
}

impl Layout {
    /// Lays out a new page and returns its first contents: nothing was sampled yet.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for more than a page can hold.
    pub fn first_page(header: &Header) -> Result<(Layout, Vec<u8>)> {
        let text = serde_json::to_vec(header).map_err(|error| {
            Error::new(ErrorKind::Internal, "cannot write the header").cause(error)
        })?;
        let live_offset = (HEAD_BYTES + text.len()).next_multiple_of(64);
        let layout = Layout {
            live_offset,
            devices: header.devices.len(),
            record_words: RECORD_WORDS,
        };
        if layout.devices > MAX_DEVICES || layout.total_bytes() > MAX_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("{} devices do not fit onto a page", layout.devices),
            ));
        }
        let mut page = Vec::with_capacity(layout.total_bytes());
        page.extend_from_slice(MAGIC);
        for number in [text.len(), live_offset, RECORD_WORDS, layout.devices] {
            page.extend_from_slice(&(number as u32).to_le_bytes());
        }
        page.extend_from_slice(&text);
        page.resize(layout.total_bytes(), 0);
        Ok((layout, page))
    }

    /// Reads everything of a page but its live part.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidFile`] for what is no page, or one of another version.
    pub fn parse(page: &[u8]) -> Result<(Header, Layout)> {
        let invalid = |what: &str| Error::new(ErrorKind::InvalidFile, format!("no page: {what}"));
        let head = page.get(..HEAD_BYTES).ok_or_else(|| invalid("too short"))?;
        if head[..7] != MAGIC[..7] {
            return Err(invalid("it begins with something else"));
        }
        if head[7] != MAGIC[7] {
            return Err(invalid(&format!("layout {} is not known here", head[7])));
        }
        let number = |at: usize| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            u32::from_le_bytes(bytes) as usize
        };
        let layout = Layout {
            live_offset: number(12),
            record_words: number(16),
            devices: number(20),
        };
        let header_end = HEAD_BYTES + number(8);
        let sane = header_end <= layout.live_offset
            && layout.live_offset.is_multiple_of(64)
            && (RECORD_WORDS..=64).contains(&layout.record_words)
            && layout.devices <= MAX_DEVICES
            && layout.live_offset <= MAX_BYTES;
        if !sane || layout.total_bytes() > page.len() {
            return Err(invalid("its parts do not fit together"));
        }
        let header: Header = serde_json::from_slice(&page[HEAD_BYTES..header_end])
            .map_err(|error| invalid("its header cannot be read").cause(error))?;
        if header.devices.len() != layout.devices {
            return Err(invalid("it has not one record a device"));
        }
        Ok((header, layout))
    }

    /// Returns how long the page is.
    pub fn total_bytes(&self) -> usize {
        self.live_offset + self.live_words() * size_of::<u64>()
    }

    /// Returns how many words the live part has.
    pub fn live_words(&self) -> usize {
        LIVE_WORDS + self.devices * self.record_words
    }

    /// Writes a look into the words of the live part, except for the first, which is the sequence.
    pub fn encode(&self, live: &Live, words: &mut Vec<u64>) {
        words.clear();
        words.extend([0, live.heartbeat_ns, live.samples, live.spent_ns]);
        for sample in &live.devices {
            let values = values(sample);
            let mask = (0..)
                .zip(values)
                .map(|(bit, value)| u64::from(value.is_some()) << bit);
            words.extend([answer_word(sample.answer), mask.sum()]);
            words.extend(values.map(Option::unwrap_or_default));
        }
        words.resize(self.live_words(), 0);
    }

    /// Reads the live part; its bytes were copied while the sequence did not change.
    pub fn decode(&self, bytes: &[u8]) -> Live {
        let (words, _) = bytes.as_chunks::<8>();
        let word = |at: usize| words.get(at).copied().map_or(0, u64::from_le_bytes);
        let devices = (0..self.devices).map(|device| {
            let first = LIVE_WORDS + device * self.record_words;
            let value = |slot: usize| {
                let is_there = word(first + 1) >> slot & 1 == 1;
                is_there.then(|| word(first + 2 + slot))
            };
            Sample {
                answer: answer_of(word(first)),
                in_use_bytes: value(0),
                peak_bytes: value(1),
                pool_bytes: value(2),
                peak_pool_bytes: value(3),
                largest_free_bytes: value(4),
                limit_bytes: value(5),
                allocations: value(6),
                driver_bytes: value(7),
            }
        });
        Live {
            heartbeat_ns: word(1),
            samples: word(2),
            spent_ns: word(3),
            devices: devices.collect(),
        }
    }
}

fn values(sample: &Sample) -> [Option<u64>; 8] {
    [
        sample.in_use_bytes,
        sample.peak_bytes,
        sample.pool_bytes,
        sample.peak_pool_bytes,
        sample.largest_free_bytes,
        sample.limit_bytes,
        sample.allocations,
        sample.driver_bytes,
    ]
}

fn answer_word(answer: StatsStatus) -> u64 {
    match answer {
        StatsStatus::Pending => 0,
        StatsStatus::Figures => 1,
        StatsStatus::NoStatistics => 2,
        StatsStatus::Failed(code) => 3 | u64::from(code) << 32,
    }
}

fn answer_of(word: u64) -> StatsStatus {
    match word & 0xffff_ffff {
        1 => StatsStatus::Figures,
        2 => StatsStatus::NoStatistics,
        3 => StatsStatus::Failed((word >> 32) as u32),
        _ => StatsStatus::Pending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::Device;

    fn header(devices: usize) -> Header {
        Header {
            pid: 41,
            started_ticks: 900,
            command: "python train.py --name \"a b\"".to_owned(),
            jax: Some("0.10.2".to_owned()),
            interval_ms: 100,
            devices: vec![Device::default(); devices],
            ..Header::default()
        }
    }

    fn bytes_of(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let header = header(2);
        let (layout, page) = Layout::first_page(&header).expect("two devices");
        assert_eq!(page.len(), layout.total_bytes());
        assert_eq!(Layout::parse(&page).expect("just made"), (header, layout));

        let first = Sample {
            answer: StatsStatus::Figures,
            in_use_bytes: Some(12),
            largest_free_bytes: Some(0),
            driver_bytes: Some(u64::MAX),
            ..Sample::default()
        };
        let second = Sample {
            answer: StatsStatus::Failed(13),
            ..Sample::default()
        };
        let live = Live {
            heartbeat_ns: 7,
            samples: 2,
            spent_ns: 9,
            devices: vec![first, second],
        };
        let mut words = Vec::new();
        layout.encode(&live, &mut words);
        assert_eq!(layout.decode(&bytes_of(&words)), live);
    }

    #[test]
    fn a_page_without_a_sample_says_so() {
        let (layout, page) = Layout::first_page(&header(1)).expect("one device");
        let live = layout.decode(&page[layout.live_offset..]);
        assert_eq!(live.samples, 0);
        assert_eq!(live.devices, [Sample::default()]);
    }

    #[test]
    fn no_file_that_is_cut_or_changed_makes_it_fall_over() {
        let (_, page) = Layout::first_page(&header(3)).expect("three devices");
        for length in 0..page.len() {
            assert!(Layout::parse(&page[..length]).is_err(), "{length} bytes");
        }
        for at in 0..HEAD_BYTES {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = page.clone();
                changed[at] = value;
                if let Ok((header, layout)) = Layout::parse(&changed) {
                    assert_eq!(header.devices.len(), layout.devices);
                    assert!(layout.total_bytes() <= changed.len());
                }
            }
        }
        let mut newer = page;
        newer[7] = 2;
        let error = Layout::parse(&newer).unwrap_err();
        assert_eq!(error.message(), "no page: layout 2 is not known here");
    }

    #[test]
    fn too_many_devices_are_refused() {
        assert!(Layout::first_page(&header(MAX_DEVICES + 1)).is_err());
    }
}
