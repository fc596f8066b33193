//! One column: how its datasets are found, and what their rows become.

use vramfit_base::nearest::nearest;
use vramfit_base::{Error, ErrorKind, Result};

use super::column_reader::{ColumnReader, Rescaling};
use super::normalization::Normalization;
use super::objects;
use super::options::{ColumnOptions, LoaderOptions};
use super::packing::{Packing, packing_attributes};
use super::storage::ColumnStorage;
use crate::hdf5::object::ObjectFinder;
use crate::hdf5::{ByteStorage, Container, Content, Datatype, Scalar, tree, wildcard};
use crate::read::{Dataset, RowOptions, RowReader, ScratchPool, find_numbers, suggest_numbers};
use crate::sample::ColumnSpan;

/// One column of a loader: a dataset, or those of the same name in several groups and files.
#[derive(Debug)]
pub struct Column {
    name: String,
    /// The path of its dataset, with wildcards and without the field.
    pattern: String,
    field: Option<String>,
    is_last_axis: bool,
    /// The type that the options say, and the one that numbers are converted to.
    wanted: Option<Scalar>,
    to: Option<Scalar>,
    stored_as: String,
    scalar: Scalar,
    row_shape: Vec<u64>,
    row_bytes: usize,
    storage: ColumnStorage,
    /// What the file that is being opened adds to it.
    file_storage: ColumnStorage,
    span: ColumnSpan,
    has_axis: bool,
    normalization: Option<Normalization>,
    /// Whether values are unpacked.
    unpack: bool,
    /// The attributes of its first dataset that say that they are packed.
    packing_attributes: Vec<&'static str>,
    /// Where the bytes of its elements are, if these are handed out as they are.
    bytes: Option<ByteStorage>,
}

impl Column {
    /// Makes a column of the options and of its first dataset, and returns both.
    ///
    /// # Errors
    /// `invalid-argument` when there is no such dataset; all that opening it can fail with.
    pub(super) fn new(
        finder: &mut ObjectFinder,
        wanted: &ColumnOptions,
        names: &[String],
        options: &LoaderOptions,
    ) -> Result<(Column, Dataset)> {
        let path = fill_wildcards(&wanted.name, names)?;
        let (dataset, field) = Dataset::find_named(finder, &path)
            .map_err(|error| with_suggestion(finder.container(), &path, error))?;
        let numbers = find_numbers(dataset.datatype(), field.as_deref()).ok();
        let from = numbers.map(|numbers| numbers.number.scalar);
        let explicit = wanted.to.or(match from {
            Some(from) if from.is_float() => options.float_type,
            _ => None,
        });
        let packing = match from.filter(|_| options.unpack) {
            Some(from) => Packing::read(&dataset, from)?,
            None => None,
        };
        let unpacked = from.filter(|_| packing.is_some());
        let unpacked = unpacked.map(|from| unpacked_type(from, options.narrow));
        let to = explicit.or(unpacked).or(from.filter(|_| options.narrow).map(narrow_type));
        let suffix = field.as_ref().map_or(0, |field| field.len() + 2);
        let column = Column {
            name: wanted.name.clone(),
            pattern: wanted.name[..wanted.name.len() - suffix].to_owned(),
            stored_as: stored_type(&dataset, field.as_deref()),
            field,
            is_last_axis: wanted.is_last_axis,
            wanted: explicit,
            to,
            scalar: Scalar::Uint8,
            row_shape: Vec::new(),
            row_bytes: 0,
            storage: ColumnStorage::default(),
            file_storage: ColumnStorage::default(),
            span: ColumnSpan {
                shift: wanted.shift,
                length: wanted.length.unwrap_or(1),
                per_sample: wanted.per_sample,
            },
            has_axis: false,
            normalization: wanted.normalization.clone(),
            unpack: options.unpack && !wanted.as_bytes,
            packing_attributes: from.map_or_else(Vec::new, |_| packing_attributes(&dataset)),
            bytes: wanted.as_bytes.then(|| find_bytes(&wanted.name, &dataset)).transpose()?,
        };
        Ok((column, dataset))
    }

    /// Finds its dataset in a segment, by what stands there for wildcards.
    ///
    /// # Errors
    /// `invalid-argument` when there is no such dataset; all that opening it can fail with.
    pub(super) fn find(&self, finder: &mut ObjectFinder, names: &[String]) -> Result<Dataset> {
        let path = fill_wildcards(&self.pattern, names)?;
        Dataset::find(finder, &path)
            .map_err(|error| with_suggestion(finder.container(), &path, error))
    }

    /// Adds a dataset to the column, which a file has, and returns its reader.
    ///
    /// # Errors
    /// `invalid-argument` when its rows are not like those of the datasets before; all that opening it can fail with.
    pub(super) fn add(
        &mut self,
        dataset: Dataset,
        file: &Container,
        scratch: &ScratchPool,
    ) -> Result<ColumnReader> {
        let path = dataset.path().to_owned();
        let stored_as = stored_type(&dataset, self.field.as_deref());
        let rows = self.open_rows(dataset, scratch)?;
        if self.row_bytes == 0 {
            (self.scalar, self.row_bytes) = (rows.scalar(), rows.row_bytes());
            self.row_shape = rows.rows().row_shape().to_vec();
            if let Some(normalization) = &self.normalization {
                normalization.ensure_fits(&self.name, self.scalar, &self.row_shape)?;
            }
        }
        let place = || format!("`{path}` of `{}`", file.source().path().display());
        self.ensure_alike(rows.rows(), &stored_as, &place)?;
        if rows.row_bytes() != self.row_bytes {
            let (bytes, first) = (rows.row_bytes(), self.row_bytes);
            return Err(refusal(format!(
                "{} has elements of {bytes} bytes, and those before it have {first}",
                place()
            )));
        }
        if rows.row_bytes() == 0 {
            return Err(refusal(format!("the rows of dataset `{path}` have no elements")));
        }
        let object_bytes = match self.bytes {
            Some(ByteStorage::Variable) => objects::sum_lengths(rows.rows())?,
            _ => 0,
        };
        self.file_storage.add(&rows, object_bytes);
        Ok(rows)
    }

    /// Ends a file whose datasets were added, before those of the next one.
    pub(super) fn end_file(&mut self) {
        self.storage.merge(std::mem::take(&mut self.file_storage));
    }

    /// Returns how the datasets are stored that were added of the file that is being opened.
    pub(super) fn file_storage(&self) -> ColumnStorage {
        self.file_storage
    }

    /// Adds the datasets of a file that is known, instead of opening them.
    pub(super) fn add_known(&mut self, storage: ColumnStorage) {
        self.storage.merge(storage);
    }

    /// Returns the name in the options: the path of the dataset, `points[x]` with a field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a reader of the rows of one of its datasets.
    ///
    /// # Errors
    /// All that opening it can fail with.
    pub(super) fn open_rows(
        &self,
        dataset: Dataset,
        scratch: &ScratchPool,
    ) -> Result<ColumnReader> {
        if self.bytes.is_some() {
            return Ok(ColumnReader::new(RowReader::raw(dataset, scratch)?, None));
        }
        let options = self.row_options(scratch);
        if !self.unpack && self.normalization.is_none() {
            return Ok(ColumnReader::new(RowReader::new(dataset, &options)?, None));
        }
        let stored = find_numbers(dataset.datatype(), self.field.as_deref())
            .map_err(|error| error.context(format_args!("dataset `{}`", dataset.path())))?;
        let packing = match self.unpack {
            true => Packing::read(&dataset, stored.number.scalar)?,
            false => None,
        };
        if packing.is_none() && self.normalization.is_none() {
            return Ok(ColumnReader::new(RowReader::new(dataset, &options)?, None));
        }
        let to = options.to.unwrap_or(stored.number.scalar);
        if !to.is_float() {
            return Err(Error::invalid_argument(format!(
                "dataset `{}` is {}, and {} numbers are floats",
                dataset.path(),
                to.name(),
                if packing.is_some() { "unpacked" } else { "normalized" }
            ))
            .python_hint(format!("choose a type: `dtype={{\"{}\": \"float32\"}}`", self.name)));
        }
        let options = RowOptions { to: Some(Scalar::Float64), ..options };
        let rows = RowReader::new(dataset, &options)?;
        let normalization = self.normalization.clone();
        Ok(ColumnReader::new(rows, Some(Rescaling { packing, normalization, to })))
    }

    /// Returns where the bytes of its elements are, if these are handed out as they are.
    pub fn bytes(&self) -> Option<ByteStorage> {
        self.bytes
    }

    /// Returns the attributes of its first dataset that say that values are packed by the conventions of netCDF (CF).
    pub fn packing_attributes(&self) -> &[&'static str] {
        &self.packing_attributes
    }

    /// Returns the bytes that the elements of all its datasets refer to.
    pub(super) fn object_bytes(&self) -> u64 {
        self.storage.object_bytes
    }

    /// Returns the type of the elements in the file.
    pub fn stored_as(&self) -> &str {
        &self.stored_as
    }

    /// Returns the type of the elements as they are handed out.
    pub fn scalar(&self) -> Scalar {
        self.scalar
    }

    /// Returns the shape of a sample: that of a row, behind an axis of rows where a sample has several.
    pub fn shape(&self) -> Vec<u64> {
        let axis = self.has_axis.then_some(self.span.length);
        let element = self.bytes.map(|_| self.row_bytes as u64);
        axis.into_iter().chain(self.row_shape.iter().copied()).chain(element).collect()
    }

    /// Returns what its first dataset decides for all others, as text.
    pub(super) fn decided_by_first(&self) -> String {
        let (types, shape) = ((&self.stored_as, self.scalar, self.to, self.bytes), &self.row_shape);
        format!("{:?} {types:?} {shape:?} {}", self.field, self.row_bytes)
    }

    /// Returns the bytes of a row as it is handed out.
    pub(super) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Returns the bytes of a sample as it is handed out.
    pub fn sample_bytes(&self) -> usize {
        (self.span.length as usize).saturating_mul(self.row_bytes)
    }

    /// Whether a sample has several rows of it.
    pub(super) fn has_axis(&self) -> bool {
        self.has_axis
    }

    pub(super) fn span(&self) -> ColumnSpan {
        self.span
    }

    pub(super) fn storage(&self) -> &ColumnStorage {
        &self.storage
    }

    /// Returns the path of its dataset in a segment, by what stands there for wildcards.
    pub(super) fn path_of(&self, names: &[String]) -> String {
        fill_wildcards(&self.pattern, names).unwrap_or_else(|_| self.pattern.clone())
    }

    pub(super) fn row_options(&self, scratch: &ScratchPool) -> RowOptions {
        let scratch = scratch.clone();
        let (field, is_last_axis) = (self.field.clone(), self.is_last_axis);
        RowOptions { field, is_last_axis, to: self.to, threads: 1, scratch }
    }

    /// Sets how many rows of it a sample has, on an axis of their own.
    pub(super) fn set_rows(&mut self, length: u64) {
        self.span.length = length;
        self.has_axis = true;
    }

    /// Rejects a dataset whose rows are not like those of the first one of the column.
    fn ensure_alike(
        &self,
        rows: &RowReader,
        stored_as: &str,
        place: &dyn Fn() -> String,
    ) -> Result<()> {
        if rows.row_shape() != self.row_shape {
            let (shape, first) = (rows.row_shape(), &self.row_shape);
            return Err(refusal(format!(
                "{} has rows of shape {shape:?}, and those before it have rows of shape {first:?}",
                place()
            )));
        }
        if stored_as != self.stored_as && self.wanted.is_none() {
            return Err(Error::invalid_argument(format!(
                "{} is {stored_as}, and those before it are {}",
                place(),
                self.stored_as
            ))
            .hint("choose files with the same types")
            .python_hint(format!(
                "convert all of them: `dtype={{\"{}\": \"float32\"}}`",
                self.name
            )));
        }
        Ok(())
    }
}

/// Returns the path that a pattern means in a segment, by what stands there for wildcards.
///
/// # Errors
/// `invalid-argument` when the pattern has other wildcards.
pub(super) fn fill_wildcards(pattern: &str, names: &[String]) -> Result<String> {
    if names.is_empty() {
        return Ok(pattern.to_owned());
    }
    wildcard::fill(pattern, names).ok_or_else(|| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        Error::invalid_argument(format!(
            "`{pattern}` has no place for {}, which stands for the wildcard of another dataset",
            names.join(" and ")
        ))
        .hint("write all datasets with the same wildcards: `data/*/obs` and `data/*/actions`")
    })
}

/// Returns where the bytes of the elements of a dataset are.
fn find_bytes(name: &str, dataset: &Dataset) -> Result<ByteStorage> {
    let bytes = match dataset.datatype() {
        Datatype::Other { bytes, .. } => *bytes,
        _ => None,
    };
    let Some(bytes) = bytes else {
        return Err(Error::invalid_argument(format!(
            "`{name}` is {}, which is neither text nor bytes",
            dataset.datatype().describe()
        ))
        .hint(match dataset.datatype() {
            Datatype::Other { what, .. } => suggest_numbers(what),
            _ => "`decode` is for text and bytes: leave it out there",
        }));
    };
    if dataset.shape().len() != 1 {
        return Err(Error::unsupported_feature(format!(
            "`{name}` has {} dimensions, and text and bytes are read from datasets of one",
            dataset.shape().len()
        )));
    }
    Ok(bytes)
}

fn stored_type(dataset: &Dataset, field: Option<&str>) -> String {
    match find_numbers(dataset.datatype(), field) {
        Ok(numbers) => numbers.number.scalar.name().to_owned(),
        Err(_) => dataset.datatype().describe(),
    }
}

pub(super) fn refusal(what: String) -> Error {
    Error::invalid_argument(what)
        .hint("choose another dataset; `vramfit data inspect` lists those of a file")
}

/// Returns the type of what packed values stand for.
fn unpacked_type(scalar: Scalar, narrow: bool) -> Scalar {
    match scalar.size() {
        8 if !narrow => Scalar::Float64,
        // Floats of 32 bits have 24 bits of an integer.
        4 if !narrow && !scalar.is_float() => Scalar::Float64,
        _ => Scalar::Float32,
    }
}

/// Returns the type that JAX converts to when 64-bit types are disabled.
fn narrow_type(scalar: Scalar) -> Scalar {
    match scalar {
        Scalar::Float64 => Scalar::Float32,
        Scalar::Int64 => Scalar::Int32,
        Scalar::Uint64 => Scalar::Uint32,
        other => other,
    }
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
        // What is wrong with the dataset itself is no typing error.
        .filter(|other| *other != path.trim_matches('/'))
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
