//! Makes data sets to try things with: of any size, the same on every machine, and learnable.
//!
//! A row is a function of the seed and its number, so rows are made by several threads in any order and
//! an attempt that was stopped is gone on with. What is made is written by [`crate::write`].

mod draw;
mod request;
mod rows;

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;

use vramfit_core::{Bytes, Result};

pub use request::{CLASSES, Kind, Request};

use crate::write::{
    self, Content, Dataset, Job, Number, Progress, Storage, Value, WriteOptions, estimate,
};

/// What was made.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The file's size.
    pub bytes: Bytes,
    /// What it holds.
    pub content: Content,
    /// The name of the loss that the best model is known by.
    pub loss: &'static str,
    /// The least that any model can reach, on average over new rows.
    pub best_loss: f64,
}

/// Generates a file; `progress` is told after each piece.
///
/// # Errors
/// `invalid-argument` for a request that cannot be; `io` when the file exists, when the disk has too
/// little room, or refuses.
pub fn generate(
    path: &Path,
    request: &Request,
    options: WriteOptions,
    threads: usize,
    progress: &mut dyn FnMut(Progress),
) -> Result<Summary> {
    request.check()?;
    let content = content(request);
    let source = |rows: Range<u64>, out: &mut [Vec<u8>]| {
        MEMORY.with_borrow_mut(|memory| {
            rows.for_each(|row| rows::append(request, row, out, memory));
        });
        Ok(())
    };
    let job = Job {
        path,
        content: content.clone(),
        purpose: &format!("generate, rules {}: {request:?}", rows::RULES),
        options,
        threads,
        expected: estimate(&content, &source)?,
    };
    let bytes = write::write(job, &source, progress)?;
    let (loss, best_loss) = rows::best_loss(&request.kind);
    Ok(Summary {
        bytes,
        content,
        loss,
        best_loss,
    })
}

thread_local! {
    /// Room for what a row needs while it is made.
    static MEMORY: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

/// Returns the datasets and attributes of a request.
fn content(request: &Request) -> Content {
    let rows = request.samples;
    let storage = request.storage();
    let dataset = |path: &str, number: Number, rest: &[u64]| {
        Dataset::new(path, number, [&[rows], rest].concat(), storage)
    };
    let number = request.number();
    let labels = dataset("labels", Number::I32, &[]);
    let datasets = match request.kind {
        Kind::Sequences {
            length,
            features,
            targets,
        } => vec![
            dataset("input_sequences", number, &[length, features]),
            dataset("targets", number, &[targets]),
        ],
        Kind::Tabular { features } => vec![dataset("features", number, &[features]), labels],
        Kind::Images { size } => vec![dataset("images", number, &[size, size, 3]), labels],
        Kind::Tokens { length, .. } => vec![dataset("tokens", number, &[length])],
    };
    let (loss, best_loss) = rows::best_loss(&request.kind);
    let text = |name: &str, value: &str| (name.to_owned(), Value::Text(value.into()));
    let mut attributes = vec![
        text("generator", "vramfit data generate"),
        ("rules".into(), Value::Integer(rows::RULES)),
        text("kind", request.kind.name()),
        ("seed".into(), Value::Integer(request.seed.cast_signed())),
        text("loss", loss),
        ("best_loss".into(), Value::Real(best_loss)),
    ];
    if let Kind::Tokens { vocabulary, .. } = request.kind {
        attributes.push((
            "vocabulary".into(),
            Value::Integer(vocabulary.cast_signed()),
        ));
    }
    Content {
        datasets,
        attributes,
        ..Content::default()
    }
}

impl Summary {
    /// Returns the bytes of all numbers, as they are in memory.
    pub fn raw_bytes(&self) -> Bytes {
        Bytes(self.content.datasets.iter().map(Dataset::bytes).sum())
    }

    /// Returns the rows of a chunk, or `None` where rows are not in chunks.
    pub fn chunk_rows(&self) -> Option<u64> {
        self.content
            .datasets
            .iter()
            .find_map(|dataset| match dataset.storage {
                Storage::Chunked { rows, .. } => Some(rows),
                Storage::Contiguous => None,
            })
    }
}
