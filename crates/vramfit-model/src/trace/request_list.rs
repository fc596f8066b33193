//! Lists of requests as plain text, one a line: `A 7 1048576` allocates, `F 7` frees.
//!
//! It is the form of the recordings in `fixtures/bfc`, and easily written by hand or by a script. `L`,
//! `M` and `D` allocate as `A` does; they differ in what XLA's log says. Nothing is known of the
//! requests but their sizes.

use std::io::{BufRead, BufReader, Read};

use rustc_hash::FxHashMap;

use super::event::{Event, Purpose, TextId};
use super::event_source::EventSource;
use super::header::{Footer, Header};
use crate::allocator::DEFAULT_FRACTION;
use crate::allocator::PoolSpace;
use crate::error::{Error, Result};

/// Longest line in bytes; two numbers of 64 bits and a letter are 43.
const MAX_LINE: u64 = 256;

/// PJRT asks for this alignment.
const ALIGNMENT: u64 = 64;

/// Reads a list of requests. Its header describes JAX's default settings and no GPU.
#[derive(Debug)]
pub struct RequestList<R> {
    source: BufReader<R>,
    header: Header,
    line: String,
    lines: u64,
    /// Allocations that were not freed yet: from the number in the text to that of the event.
    live: FxHashMap<u64, u64>,
    allocations: u64,
    footer: Option<Footer>,
}

impl<R: Read> RequestList<R> {
    /// Prepares to read. Nothing is read yet, so nothing can fail.
    pub fn new(source: R) -> RequestList<R> {
        RequestList {
            source: BufReader::new(source),
            header: Header {
                jax: "0.10.2".to_owned(),
                devices: 1,
                allocator: "bfc".to_owned(),
                memory_fraction: DEFAULT_FRACTION,
                preallocate: true,
                ..Header::default()
            },
            line: String::new(),
            lines: 0,
            live: FxHashMap::default(),
            allocations: 0,
            footer: None,
        }
    }

    /// Returns `true` if a file that begins with these bytes is such a list.
    pub fn looks_like(beginning: &[u8]) -> bool {
        let verb = beginning.first().is_some_and(|byte| b"ALMDF".contains(byte));
        verb && beginning.get(1) == Some(&b' ')
    }

    fn event(&mut self) -> Result<Event> {
        let wrong = |what: &str| {
            Err(Error::invalid_file(format!("line {} of the list: {what}", self.lines)))
        };
        let words: Vec<_> = self.line.split_ascii_whitespace().collect();
        let number = |word: &str| word.parse::<u64>().ok();
        match words[..] {
            ["A" | "L" | "M" | "D", id, bytes] => {
                let Some((id, bytes)) = number(id).zip(number(bytes)) else {
                    return wrong("an allocation needs an id and a number of bytes");
                };
                if self.live.insert(id, self.allocations).is_some() {
                    return wrong("the id is used twice");
                }
                self.allocations += 1;
                Ok(Event::Allocate {
                    device: 0,
                    bytes,
                    alignment: ALIGNMENT,
                    space: PoolSpace::Default,
                    purpose: Purpose::Upload,
                    slot: 0,
                    site: TextId(0),
                })
            }
            ["F", id] => match number(id).and_then(|id| self.live.remove(&id)) {
                Some(allocation) => Ok(Event::Free { allocation }),
                None => wrong("the id is not allocated"),
            },
            _ => wrong("expected `A ID BYTES` or `F ID`"),
        }
    }
}

impl<R: Read> EventSource for RequestList<R> {
    fn header(&self) -> &Header {
        &self.header
    }

    fn next_event(&mut self) -> Result<Option<Event>> {
        loop {
            self.line.clear();
            let mut bounded = (&mut self.source).take(MAX_LINE);
            let count = bounded.read_line(&mut self.line).map_err(|error| {
                match error.kind() {
                    std::io::ErrorKind::InvalidData => {
                        Error::invalid_file("the list is not UTF-8 text")
                    }
                    _ => Error::io("the list could not be read"),
                }
                .cause(error)
            })?;
            if count == 0 {
                self.footer.get_or_insert_default();
                return Ok(None);
            }
            self.lines += 1;
            if !self.line.trim().is_empty() {
                return self.event().map(Some);
            }
        }
    }

    fn text(&self, _id: TextId) -> &str {
        ""
    }

    fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    fn has_recorded_results(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn read(text: &str) -> Result<Vec<Event>> {
        let mut trace = RequestList::new(text.as_bytes());
        let mut events = Vec::new();
        while let Some(event) = trace.next_event()? {
            events.push(event);
        }
        assert!(trace.footer().is_some());
        Ok(events)
    }

    #[test]
    fn numbers_in_the_text_become_those_of_the_events() {
        let events = read("A 5 100\nA 7 0\n\nF 7\nL 7 3\nF 7").unwrap();
        let freed: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Free { allocation } => Some(*allocation),
                _ => None,
            })
            .collect();
        assert_eq!((events.len(), &freed[..]), (5, &[1, 2][..]));
    }

    #[test]
    fn what_is_no_list_is_refused_with_its_line() {
        for (text, what) in [
            ("A 1 2\nB 1", "line 2"),
            ("A 1", "expected"),
            ("A 1 -2", "a number of bytes"),
            ("A 1 2\nA 1 2", "twice"),
            ("F 1", "is not allocated"),
            ("A 1 2\nF 1\nF 1", "line 3"),
        ] {
            let error = read(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidFile, "{text}");
            assert!(error.message().contains(what), "{text}: {error}");
        }
        assert!(read(&format!("A 1 {}", "9".repeat(1000))).is_err());
    }

    #[test]
    fn a_list_is_distinguished_from_a_trace() {
        assert!(RequestList::<&[u8]>::looks_like(b"A 0 1024\n"));
        assert!(!RequestList::<&[u8]>::looks_like(b"vramfit trace 1\n"));
        assert!(!RequestList::<&[u8]>::looks_like(b""));
    }
}
