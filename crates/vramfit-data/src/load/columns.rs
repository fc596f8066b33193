//! The datasets whose rows belong together, and whether their files are still the same.

use std::path::PathBuf;
use std::sync::OnceLock;

use vramfit_base::nearest::nearest;
use vramfit_base::{Error, ErrorKind, Result};

use super::options::{ColumnOptions, LoaderOptions};
use crate::hdf5::{Container, Content, Scalar, tree};
use crate::inspect;
use crate::order;
use crate::read::{Dataset, RowOptions, RowReader, Storage, find_numbers};
use crate::source::{FileFingerprint, MAX_SAMPLED_BYTES, sample_digest};
use crate::splitmix::MixKey;

/// One dataset of a loader.
#[derive(Debug)]
pub struct Column {
    rows: RowReader,
    name: String,
    stored_as: String,
}

impl Column {
    /// Returns the name in the options: the path of the dataset, `points[x]` with a field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type of the elements in the file.
    pub fn stored_as(&self) -> &str {
        &self.stored_as
    }

    /// Returns its reader.
    pub fn rows(&self) -> &RowReader {
        &self.rows
    }
}

/// All datasets of a loader.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) columns: Vec<Column>,
    pub(super) path: PathBuf,
    /// Every file that rows come from, as it was when its structure was read.
    files: Vec<(PathBuf, FileFingerprint)>,
    /// The fingerprint of the files without their content.
    pub(super) fingerprint: order::DataFingerprint,
    /// Computed when first needed.
    contents: OnceLock<Option<u64>>,
}

impl Columns {
    /// Opens the datasets.
    ///
    /// # Errors
    /// `invalid-argument` when a dataset is not there, has no rows, or they have different numbers of them;
    /// all that opening a file can fail with.
    pub(super) fn open(options: &LoaderOptions) -> Result<Columns> {
        let path = &options.file;
        if options.columns.is_empty() {
            return Err(Error::invalid_argument("no dataset was given")
                .hint("name at least one, such as `x`"));
        }
        // Taken before anything is read, so that no change goes unnoticed.
        let main = FileFingerprint::of(path)?;
        let container = inspect::open(path)?;
        let mut columns: Vec<Column> = Vec::new();
        for wanted in &options.columns {
            if columns.iter().any(|column| column.name == wanted.name) {
                return Err(Error::invalid_argument(format!(
                    "dataset `{}` was given twice",
                    wanted.name
                ))
                .hint("list it once, and use its rows twice"));
            }
            columns.push(open_column(&container, wanted, options)?);
        }
        ensure_same_length(&columns)?;
        let mut files = vec![(path.clone(), main)];
        for column in &columns {
            add_files(column.rows.dataset(), &mut files)?;
        }
        let fingerprint = fingerprint(&columns, &files);
        let columns =
            Columns { columns, path: path.clone(), files, fingerprint, contents: OnceLock::new() };
        // The structure of a file that is being written is not consistent.
        columns.ensure_unchanged()?;
        Ok(columns)
    }

    /// Returns the number of rows, which is above zero.
    pub(super) fn len(&self) -> u64 {
        self.columns[0].rows.len()
    }

    /// Returns the bytes of one row of all columns, as they are handed out.
    pub(super) fn row_bytes(&self) -> u64 {
        let bytes = self.columns.iter().map(|c| c.rows.row_bytes() as u64);
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the bytes of each column in a batch of this process.
    pub(super) fn batch_lengths(&self, options: &LoaderOptions) -> Vec<usize> {
        let shard_size = options.batch_size / options.shard.count.max(1);
        let rows = shard_size * options.stacked_batches.unwrap_or(1);
        (self.columns.iter()).map(|column| rows as usize * column.rows.row_bytes()).collect()
    }

    /// Returns a hash of the content of the files; none when they cannot be read or have changed.
    pub(super) fn content_hash(&self) -> Option<u64> {
        *self.contents.get_or_init(|| {
            let digests = self.files.iter().map(|(path, _)| sample_digest(path));
            let digests: Vec<u64> = digests.collect::<Result<_>>().ok()?;
            self.ensure_unchanged().ok()?;
            Some(MixKey::new(&digests).at(0))
        })
    }

    /// Returns whether [`contents`](Self::contents) leaves out parts of a file.
    pub(super) fn is_sampled(&self) -> bool {
        self.files.iter().any(|(_, file)| file.length > MAX_SAMPLED_BYTES)
    }

    /// Checks that no file was written to, truncated or replaced.
    ///
    /// # Errors
    /// `file-changed`; `io` when a file no longer exists.
    pub(super) fn ensure_unchanged(&self) -> Result<()> {
        for (path, was) in &self.files {
            let now = FileFingerprint::of(path)?;
            if now == *was {
                continue;
            }
            let (old, new) = (was.length, now.length);
            let what = match old == new {
                true => "it was written to".to_owned(),
                false => format!("its size was {old} bytes and is now {new}"),
            };
            let path = path.display();
            let message = format!("`{path}` changed while it was being read: {what}");
            return Err(Error::new(ErrorKind::FileChanged, message)
                .hint("open it again after the program that writes it has finished"));
        }
        Ok(())
    }
}

fn open_column(
    container: &Container,
    wanted: &ColumnOptions,
    options: &LoaderOptions,
) -> Result<Column> {
    let (dataset, field) = Dataset::open_named(container, &wanted.name)
        .map_err(|error| with_suggestion(container, &wanted.name, error))?;
    let numbers = find_numbers(dataset.datatype(), field.as_deref()).ok();
    let from = numbers.map(|numbers| numbers.number.scalar);
    let to = wanted.to.or(match from {
        Some(from) if from.is_float() && options.float_type.is_some() => options.float_type,
        Some(from) if options.narrow => Some(narrowed(from)),
        _ => None,
    });
    let stored_as =
        from.map_or_else(|| dataset.datatype().describe(), |scalar| scalar.name().to_owned());
    let options = RowOptions { field, to, threads: 1 };
    let rows = RowReader::new(dataset, &options)?;
    let name = wanted.name.clone();
    let refuse = |what: String| {
        Err(Error::invalid_argument(what)
            .hint("choose another dataset; `vramfit data inspect` lists those of a file"))
    };
    if rows.is_empty() {
        return refuse(format!("dataset `{name}` has no rows"));
    }
    if rows.row_bytes() == 0 {
        return refuse(format!("the rows of dataset `{name}` have no elements"));
    }
    Ok(Column { rows, name, stored_as })
}

/// Returns the type that JAX converts to when 64-bit types are disabled.
fn narrowed(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::Float64 => Scalar::Float32,
        Scalar::Int64 => Scalar::Int32,
        Scalar::Uint64 => Scalar::Uint32,
        other => other,
    }
}

fn ensure_same_length(columns: &[Column]) -> Result<()> {
    let first = &columns[0];
    let differs = |other: &&Column| other.rows.len() != first.rows.len();
    let Some(other) = columns.iter().find(differs) else {
        return Ok(());
    };
    Err(Error::invalid_argument(format!(
        "datasets must have the same number of rows: `{}` has {}, but `{}` has {}",
        first.name,
        first.rows.len(),
        other.name,
        other.rows.len()
    ))
    .hint("choose datasets with the same number of rows"))
}

/// Suggests the dataset with the most similar path.
fn with_suggestion(container: &Container, path: &str, error: Error) -> Error {
    if error.kind() != ErrorKind::InvalidArgument {
        return error;
    }
    let nodes = tree(container).unwrap_or_default();
    let paths: Vec<(String, &str)> = (nodes.iter())
        .filter(|node| matches!(node.content, Content::Dataset(_)))
        .map(|node| node.path.trim_matches('/'))
        .map(|path| (path.to_lowercase(), path))
        .collect();
    let wanted = path.trim_matches('/').to_lowercase();
    let similar = nearest(&wanted, paths.iter().map(|(lower, _)| lower.as_str()));
    let suggestion = paths.iter().find(|(lower, _)| similar.first() == Some(&lower.as_str()));
    match suggestion {
        Some((_, path)) => error.hint(format!("did you mean `{path}`?")),
        None => error,
    }
}

fn add_files(dataset: &Dataset, files: &mut Vec<(PathBuf, FileFingerprint)>) -> Result<()> {
    let path = dataset.container().source().path();
    if files.iter().all(|(known, _)| known != path) {
        files.push((path.to_owned(), FileFingerprint::of(path)?));
    }
    if let Storage::Virtual(pieces) = dataset.storage() {
        for piece in pieces.iter() {
            add_files(&piece.dataset, files)?;
        }
    }
    Ok(())
}

fn fingerprint(columns: &[Column], files: &[(PathBuf, FileFingerprint)]) -> order::DataFingerprint {
    let mut chunks = 0;
    let mut hash = 0;
    for column in columns {
        hash_index(column.rows.dataset(), &mut chunks, &mut hash);
    }
    let (_, main) = &files[0];
    let mut modified = main.modified_ns as i64;
    for (_, other) in &files[1..] {
        hash = MixKey::new(&[hash, other.length]).at(0);
        modified = MixKey::new(&[modified as u64, other.modified_ns as u64]).at(0) as i64;
    }
    order::DataFingerprint {
        bytes: main.length,
        modified_ns: modified,
        chunks,
        index_hash: hash,
        contents: None,
    }
}

/// Adds the offsets of the chunks of a dataset to a hash.
fn hash_index(dataset: &Dataset, chunks: &mut u64, hash: &mut u64) {
    match dataset.storage() {
        Storage::Compact(_) => {}
        Storage::Contiguous(address) => *hash = MixKey::new(&[*hash, address.unwrap_or(0)]).at(0),
        Storage::Chunked { table, .. } => {
            *chunks += table.len();
            for chunk in table.iter() {
                let parts = [*hash, chunk.address, chunk.size, chunk.filter_mask.into()];
                *hash = MixKey::new(&parts).at(0);
            }
        }
        Storage::Virtual(pieces) => {
            for piece in pieces.iter() {
                hash_index(&piece.dataset, chunks, hash);
            }
        }
    }
}
