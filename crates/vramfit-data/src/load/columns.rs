//! The datasets whose rows belong together, and whether their files are still the same.

use std::path::PathBuf;
use std::sync::OnceLock;

use vramfit_core::{Error, ErrorKind, Result};

use super::request::{ColumnRequest, Request};
use crate::hdf5::{Container, Content, Element, Scalar, tree};
use crate::inspect;
use crate::mix::Key;
use crate::order;
use crate::read::{Dataset, RowOptions, Rows, Storage};
use crate::source::{Fingerprint, MAX_SAMPLED_BYTES, sample_digest};

/// One dataset of a loader.
#[derive(Debug)]
pub struct Column {
    rows: Rows,
    name: String,
    from: String,
}

impl Column {
    /// Returns the name it was asked for by: the path of the dataset, `points[x]` with a field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns what the elements are in the file, in words.
    pub fn stored_as(&self) -> &str {
        &self.from
    }

    /// Returns what reads it.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }
}

/// All datasets of a loader.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) columns: Vec<Column>,
    path: PathBuf,
    /// Every file that rows come from, and what it was when its structure was read.
    files: Vec<(PathBuf, Fingerprint)>,
    fingerprint: order::Fingerprint,
    /// Read when it is first asked for, and not again.
    contents: OnceLock<Option<u64>>,
}

impl Columns {
    /// Opens the datasets of a request.
    ///
    /// # Errors
    /// `invalid-argument` when a dataset is not there, has no rows, or they have different numbers of them;
    /// all that opening a file can fail with.
    pub(super) fn open(request: &Request) -> Result<Columns> {
        let path = &request.file;
        if request.columns.is_empty() {
            return Err(invalid("no dataset is named").hint("name one, such as `x`"));
        }
        // Taken before anything is read, so that no change goes unnoticed.
        let main = Fingerprint::of(path)?;
        let container = inspect::open(path)?;
        let mut columns: Vec<Column> = Vec::new();
        for wanted in &request.columns {
            if columns.iter().any(|column| column.name == wanted.name) {
                return Err(invalid(format!("`{}` is named twice", wanted.name))
                    .hint("read it once, and use its rows under both names"));
            }
            columns.push(open_column(&container, wanted, request)?);
        }
        same_length(&columns)?;
        let mut files = vec![(path.clone(), main)];
        for column in &columns {
            add_files(column.rows.dataset(), &mut files)?;
        }
        let fingerprint = fingerprint(&columns, &files);
        let columns = Columns {
            columns,
            path: path.clone(),
            files,
            fingerprint,
            contents: OnceLock::new(),
        };
        // A file that is being written has no one structure.
        columns.must_be_unchanged()?;
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
    pub(super) fn lengths(&self, request: &Request) -> Vec<usize> {
        let share = request.batch_size / request.world.processes.max(1);
        let rows = share * request.super_batch.unwrap_or(1);
        let columns = self.columns.iter();
        let lengths = columns.map(|column| rows as usize * column.rows.row_bytes());
        lengths.collect()
    }

    /// Returns what is known of the files without their content.
    pub(super) fn fingerprint(&self) -> order::Fingerprint {
        self.fingerprint
    }

    /// Returns a hash of what is in the files; none when they cannot be read or were changed meanwhile.
    pub(super) fn contents(&self) -> Option<u64> {
        *self.contents.get_or_init(|| {
            let digests = self.files.iter().map(|(path, _)| sample_digest(path));
            let digests: Vec<u64> = digests.collect::<Result<_>>().ok()?;
            self.must_be_unchanged().ok()?;
            Some(Key::new(&digests).at(0))
        })
    }

    /// Returns whether [`contents`](Self::contents) leaves out parts of a file.
    pub(super) fn is_sampled(&self) -> bool {
        self.files
            .iter()
            .any(|(_, file)| file.length > MAX_SAMPLED_BYTES)
    }

    pub(super) fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Refuses to go on with a file that was written to, cut short or exchanged.
    ///
    /// # Errors
    /// `file-changed`; `io` when a file is gone.
    pub(super) fn must_be_unchanged(&self) -> Result<()> {
        for (path, was) in &self.files {
            let now = Fingerprint::of(path)?;
            if now != *was {
                let what = match now.length == was.length {
                    true => "it was written to".to_owned(),
                    false => format!("it had {} bytes and has {}", was.length, now.length),
                };
                return Err(Error::new(
                    ErrorKind::FileChanged,
                    format!("`{}` was changed while it was read: {what}", path.display()),
                )
                .hint("open it again once the program that writes it has finished"));
            }
        }
        Ok(())
    }
}

fn open_column(container: &Container, wanted: &ColumnRequest, request: &Request) -> Result<Column> {
    let (dataset, field) = Dataset::open_named(container, &wanted.name)
        .map_err(|error| with_nearest(container, &wanted.name, error))?;
    let from = match (&field, dataset.element()) {
        (Some(field), Element::Record { fields, .. }) => fields
            .iter()
            .find(|one| one.name == *field)
            .map(|one| one.numbers.number.scalar),
        (_, Element::Numbers { numbers, .. }) => Some(numbers.number.scalar),
        _ => None,
    };
    let to = wanted.to.or(match from {
        Some(from) if is_float(from) && request.floats.is_some() => request.floats,
        Some(from) if request.narrow => Some(narrowed(from)),
        _ => None,
    });
    let stored_as = from.map_or_else(
        || dataset.element().describe(),
        |scalar| scalar.name().to_owned(),
    );
    let options = RowOptions {
        field,
        to,
        threads: 1,
    };
    let rows = Rows::new(dataset, &options)?;
    if rows.is_empty() {
        return Err(invalid(format!("dataset `{}` has no rows", wanted.name))
            .hint("name another dataset; `vramfit data inspect` lists those of a file"));
    }
    if rows.row_bytes() == 0 {
        return Err(invalid(format!(
            "the rows of dataset `{}` have no elements",
            wanted.name
        ))
        .hint("name another dataset; `vramfit data inspect` lists those of a file"));
    }
    Ok(Column {
        rows,
        name: wanted.name.clone(),
        from: stored_as,
    })
}

fn is_float(scalar: Scalar) -> bool {
    matches!(
        scalar,
        Scalar::Float16 | Scalar::Bfloat16 | Scalar::Float32 | Scalar::Float64
    )
}

/// Returns what JAX would make of a type when its numbers of 64 bits are switched off.
fn narrowed(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::Float64 => Scalar::Float32,
        Scalar::Int64 => Scalar::Int32,
        Scalar::Uint64 => Scalar::Uint32,
        other => other,
    }
}

fn same_length(columns: &[Column]) -> Result<()> {
    let Some((first, others)) = columns.split_first() else {
        return Ok(());
    };
    for other in others {
        if other.rows.len() != first.rows.len() {
            return Err(invalid(format!(
                "`{}` has {} rows and `{}` has {}, so they do not belong together",
                first.name,
                first.rows.len(),
                other.name,
                other.rows.len()
            ))
            .hint("name datasets of as many rows each, or store them so"));
        }
    }
    Ok(())
}

/// Adds the dataset of the file whose path is most like the one that is not there.
fn with_nearest(container: &Container, path: &str, error: Error) -> Error {
    if error.kind() != ErrorKind::InvalidArgument {
        return error;
    }
    let wanted = path.trim_matches('/');
    let nodes = tree(container).unwrap_or_default();
    let nearest = nodes
        .iter()
        .filter(|node| matches!(node.content, Content::Dataset(_)))
        .map(|node| node.path.trim_matches('/'))
        .filter(|there| *there != wanted)
        .map(|there| (distance(wanted, there), there))
        .min();
    match nearest {
        Some((edits, there)) if edits * 2 <= wanted.chars().count().max(2) => {
            error.hint(format!("did you mean `{there}`?"))
        }
        _ => error,
    }
}

/// Returns how many letters have to be added, removed or exchanged to make one text of another.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, letter) in one.to_lowercase().chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, there) in other.iter().enumerate() {
            let exchanged = diagonal + usize::from(letter != *there);
            diagonal = row[column + 1];
            row[column + 1] = exchanged.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.len()]
}

fn add_files(dataset: &Dataset, files: &mut Vec<(PathBuf, Fingerprint)>) -> Result<()> {
    let path = dataset.container().source().path();
    if files.iter().all(|(known, _)| known != path) {
        files.push((path.to_owned(), Fingerprint::of(path)?));
    }
    if let Storage::Virtual(pieces) = dataset.storage() {
        for piece in pieces.iter() {
            add_files(&piece.dataset, files)?;
        }
    }
    Ok(())
}

fn fingerprint(columns: &[Column], files: &[(PathBuf, Fingerprint)]) -> order::Fingerprint {
    let mut chunks = 0;
    let mut hash = 0;
    for column in columns {
        index(column.rows.dataset(), &mut chunks, &mut hash);
    }
    let (_, main) = &files[0];
    let mut modified = main.modified_ns as i64;
    for (_, other) in &files[1..] {
        hash = Key::new(&[hash, other.length]).at(0);
        modified = Key::new(&[modified as u64, other.modified_ns as u64]).at(0) as i64;
    }
    order::Fingerprint {
        bytes: main.length,
        modified_ns: modified,
        chunks,
        index_hash: hash,
        contents: None,
    }
}

/// Adds where the pieces of a dataset are to a hash.
fn index(dataset: &Dataset, chunks: &mut u64, hash: &mut u64) {
    match dataset.storage() {
        Storage::Compact(_) => {}
        Storage::Contiguous(address) => *hash = Key::new(&[*hash, address.unwrap_or(0)]).at(0),
        Storage::Chunked { table, .. } => {
            *chunks += table.len();
            for chunk in table.iter() {
                let parts = [*hash, chunk.address, chunk.size, chunk.filter_mask.into()];
                *hash = Key::new(&parts).at(0);
            }
        }
        Storage::Virtual(pieces) => {
            for piece in pieces.iter() {
                index(&piece.dataset, chunks, hash);
            }
        }
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn names_are_as_far_apart_as_letters_differ() {
        for (one, other, edits) in [
            ("", "", 0),
            ("images", "image", 1),
            ("lables", "labels", 2),
            ("X", "x", 0),
        ] {
            assert_eq!(distance(one, other), edits, "{one} {other}");
            assert_eq!(distance(other, one), edits, "{other} {one}");
        }
    }
}
