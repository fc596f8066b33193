//! Makes data sets to try things with: of any size, the same on every machine, and learnable.
//!
//! A row is a function of the seed and its number, so rows are made by several threads in any order and
//! an attempt that was stopped can be resumed. Files are written by [`crate::write`].

mod draw;
mod options;
mod rows;

use std::cell::RefCell;
use std::ops::Range;
use std::path::Path;

use vramfit_base::{Bytes, Result};

pub use options::{CLASSES, GenerateOptions, Kind};

use crate::write::{
    self, Content, Dataset, Number, Progress, Value, WriteOptions, WriteTask, estimate_file_size,
};

/// What was made.
#[derive(Clone, Debug)]
pub struct GeneratedData {
    /// The file's size.
    pub bytes: Bytes,
    /// Its content.
    pub content: Content,
    /// The name of the loss that the best model is known by.
    pub loss: &'static str,
    /// The least that any model can reach, on average over new rows.
    pub best_loss: f64,
}

/// Generates a file; `progress` is called after each piece.
///
/// # Errors
/// `invalid-argument` for invalid options; `io` when the file exists, when the disk has too
/// little room, or refuses.
pub fn generate(
    path: &Path,
    options: &GenerateOptions,
    write_options: WriteOptions,
    threads: usize,
    progress: &mut dyn FnMut(Progress),
) -> Result<GeneratedData> {
    options.check()?;
    let content = content(options);
    let source = |rows: Range<u64>, out: &mut [Vec<u8>]| {
        MEMORY.with_borrow_mut(|memory| {
            rows.for_each(|row| rows::append(options, row, out, memory));
        });
        Ok(())
    };
    let task = WriteTask {
        path,
        content: content.clone(),
        purpose: &format!("generate, rules {}: {options:?}", rows::RULES),
        options: write_options,
        threads,
        expected: estimate_file_size(&content, &source)?,
    };
    let bytes = write::write(task, &source, progress)?;
    let (loss, best_loss) = rows::best_loss(&options.kind);
    Ok(GeneratedData { bytes, content, loss, best_loss })
}

thread_local! {
    /// Room for what a row needs while it is made.
    static MEMORY: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

/// Returns the datasets and attributes of a options.
fn content(options: &GenerateOptions) -> Content {
    let rows = options.samples;
    let storage = options.storage();
    let dataset = |path: &str, number: Number, rest: &[u64]| {
        Dataset::new(path, number, [&[rows], rest].concat(), storage)
    };
    let number = options.number();
    let labels = dataset("labels", Number::I32, &[]);
    let datasets = match options.kind {
        Kind::Sequences { length, features, targets } => vec![
            dataset("input_sequences", number, &[length, features]),
            dataset("targets", number, &[targets]),
        ],
        Kind::Tabular { features } => vec![dataset("features", number, &[features]), labels],
        Kind::Images { size } => vec![dataset("images", number, &[size, size, 3]), labels],
        Kind::Tokens { length, .. } => vec![dataset("tokens", number, &[length])],
    };
    let (loss, best_loss) = rows::best_loss(&options.kind);
    let text = |name: &str, value: &str| (name.to_owned(), Value::Text(value.into()));
    let mut attributes = vec![
        text("generator", "vramfit data generate"),
        ("rules".into(), Value::Integer(rows::RULES)),
        text("kind", options.kind.name()),
        ("seed".into(), Value::Integer(options.seed.cast_signed())),
        text("loss", loss),
        ("best_loss".into(), Value::Real(best_loss)),
    ];
    if let Kind::Tokens { vocabulary, .. } = options.kind {
        attributes.push(("vocabulary".into(), Value::Integer(vocabulary.cast_signed())));
    }
    Content { datasets, attributes }
}

impl GeneratedData {
    /// Returns the bytes of all numbers, as they are in memory.
    pub fn raw_bytes(&self) -> Bytes {
        Bytes(self.content.datasets.iter().map(Dataset::bytes).sum())
    }

    /// Returns the rows of a chunk, or `None` where rows are not in chunks.
    pub fn chunk_rows(&self) -> Option<u64> {
        self.content.datasets.iter().find_map(Dataset::chunk_rows)
    }
}
