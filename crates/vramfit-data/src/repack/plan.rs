//! The plan of a repack.

use std::path::{Path, PathBuf};

use serde::Serialize;
use vramfit_core::{Bytes, Error, Result};

use super::copy_pass::{self, MemoryPlan};
use super::manifest::{FileManifest, StreamedDataset};
use super::{Omission, RepackOptions, layout, select};
use crate::filter;
use crate::hdf5::Container;
use crate::inspect;
use crate::read::{Dataset as SourceDataset, RowReader, Storage as Stored};
use crate::source::FileFingerprint;
use crate::write::{self, Compression, Content, Dataset, Section, Storage};

/// How a file will be rewritten.
pub struct RepackPlan {
    pub(super) source: PathBuf,
    pub(super) container: Container,
    /// The file as it was when the plan was made.
    pub(super) fingerprint: FileFingerprint,
    pub(super) content: Content,
    /// The path in the old file of each dataset of the content.
    pub(super) from: Vec<String>,
    pub(super) sections: Vec<Section>,
    /// The old and new storage of each dataset whose rows are copied, by path.
    pub steps: Vec<Step>,
    /// Scalars, strings and named datatypes, which are copied unchanged.
    pub small_objects: usize,
    /// What is not copied.
    pub omissions: Vec<Omission>,
    /// Size of the old file.
    pub old_bytes: Bytes,
    /// Size of the new file: exact without compression, otherwise estimated from a few chunks.
    pub new_bytes: Bytes,
    /// Whether the size of the new file is an estimate.
    pub is_estimate: bool,
    /// Memory limit for rows.
    pub memory: Bytes,
    /// Threads that decode and compress.
    pub threads: usize,
}

/// The old and new storage of one dataset.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Its path in the new file.
    pub path: String,
    /// Type of its elements.
    pub dtype: String,
    /// Length of each axis.
    pub shape: Vec<u64>,
    /// Old storage.
    pub old: StorageInfo,
    /// New storage.
    pub new: StorageInfo,
    /// Rows that are read at once.
    pub rows_per_read: u64,
    /// How often each chunk of the old file is decoded at most; once where it has none.
    pub decodes: u64,
    /// Why it is not stored as was asked for, where it is not.
    pub note: Option<String>,
}

/// How a dataset is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StorageInfo {
    /// `compact`, `contiguous`, `chunked` or `virtual`.
    pub layout: &'static str,
    /// Length of a chunk along each axis.
    pub chunk: Option<Vec<u64>>,
    /// What is done to each chunk.
    pub filters: Vec<String>,
    /// What it takes on the disk.
    pub bytes: Bytes,
    /// Whether that is an estimate from a few chunks.
    pub is_estimate: bool,
}

impl std::fmt::Debug for RepackPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RepackPlan")
            .field("source", &self.source)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

/// Plans how a file is rewritten. Its structure is read, and of what will be compressed a few chunks.
///
/// # Errors
///
/// `unsupported-feature` when a dataset cannot be copied, naming all of those; `invalid-argument` when
/// a path is not in the file or the memory too small; `invalid-file` or `io` when it cannot be read.
pub fn plan(path: &Path, options: &RepackOptions) -> Result<RepackPlan> {
    let fingerprint = FileFingerprint::of(path)?;
    let container = inspect::open(path)?;
    let mut manifest = FileManifest::of(&container)?;
    select::select(path, &container, &mut manifest, &options.datasets)?;
    must_be_copied(path, &manifest)?;
    let opened = |streamed: &StreamedDataset| SourceDataset::open_in(&container, &streamed.from);
    let sources = manifest.streamed.iter().map(opened);
    let sources: Vec<SourceDataset> = sources.collect::<Result<_>>()?;
    let at_once = copy_pass::bytes_per_thread(options.memory);
    let notes = layout::decide(options, &sources, &mut manifest.streamed, at_once)?;
    let datasets = manifest.streamed.iter().map(|streamed| &streamed.dataset);
    let pairs: Vec<_> = sources.iter().zip(datasets).collect();
    let MemoryPlan { threads, passes, memory } =
        copy_pass::plan_memory(&pairs, options.threads, options.memory)?;
    let mut steps = Vec::new();
    for ((streamed, source), (pass, note)) in
        (manifest.streamed.iter().zip(&sources)).zip(passes.iter().zip(notes))
    {
        let dataset = &streamed.dataset;
        steps.push(Step {
            path: format!("/{}", dataset.path),
            dtype: dataset.datatype.name().to_owned(),
            shape: dataset.shape.clone(),
            old: old_storage(source, streamed),
            new: new_storage(dataset, estimated(source, dataset)?),
            rows_per_read: pass.rows.min(dataset.rows()),
            decodes: match source.storage() {
                Stored::Chunked { .. } | Stored::Virtual(_) => pass.decodes,
                _ => 1,
            },
            note,
        });
    }
    let sections = passes
        .iter()
        .enumerate()
        .map(|(at, pass)| Section { datasets: at..at + 1, piece_rows: pass.rows });
    let content = manifest.content;
    let (front, of_chunk) = write::overhead(&content);
    let (from, datasets): (Vec<String>, Vec<Dataset>) =
        (manifest.streamed.into_iter()).map(|streamed| (streamed.from, streamed.dataset)).unzip();
    let chunks: u64 = datasets.iter().map(Dataset::chunks).sum();
    let rows = (steps.iter()).map(|step| step.new.bytes.0.next_multiple_of(4096));
    Ok(RepackPlan {
        source: path.to_owned(),
        fingerprint,
        sections: sections.collect(),
        from,
        small_objects: content.inline.len(),
        omissions: manifest.omissions,
        old_bytes: Bytes(container.source().length()),
        new_bytes: Bytes(front.0 + rows.sum::<u64>() + chunks * of_chunk.0),
        is_estimate: steps.iter().any(|step| step.new.is_estimate),
        memory,
        threads,
        content: Content { datasets, ..content },
        steps,
        container,
    })
}

/// Refuses a file of which not all datasets can be copied, unless others were chosen.
fn must_be_copied(file: &Path, manifest: &FileManifest) -> Result<()> {
    let Some((path, first)) = manifest.refused.first() else {
        return Ok(());
    };
    let reason = first.message();
    let prefix = format!("dataset `{path}`: ");
    let reason = reason.strip_prefix(&prefix).unwrap_or(reason);
    let mut message = format!("`/{}` cannot be copied: {reason}", path.escape_debug());
    let others: Vec<String> = (manifest.refused.iter().skip(1).take(8))
        .map(|(path, _)| format!("`/{}`", path.escape_debug()))
        .collect();
    if !others.is_empty() {
        message.push_str(&format!("; the same applies to {}", others.join(", ")));
    }
    let error = Error::new(first.kind(), message);
    let copied: Vec<String> =
        manifest.datasets().map(|path| format!("/{}", path.escape_debug())).collect();
    let is_plain = |name: &String| {
        let mut letters = name.chars();
        letters.all(|c| c.is_alphanumeric() || "/_-.".contains(c))
    };
    Err(match (first.hint_text(), copied.len()) {
        (Some(hint), 0) => error.hint(hint),
        (None, 0) => error,
        (_, 1..=16) if copied.iter().all(is_plain) => error.hint(format!(
            "to copy the rest: `vramfit data repack {} OUT --datasets {}`",
            file.display(),
            copied.join(",")
        )),
        _ => error.hint("choose what to copy with `--datasets`"),
    })
}

fn old_storage(source: &SourceDataset, streamed: &StreamedDataset) -> StorageInfo {
    let (layout, chunk) = match source.storage() {
        Stored::Compact(_) => ("compact", None),
        Stored::Contiguous(_) => ("contiguous", None),
        Stored::Virtual(_) => ("virtual", None),
        Stored::Chunked { grid, .. } => ("chunked", Some(grid.chunk.to_vec())),
    };
    StorageInfo {
        layout,
        chunk,
        filters: streamed.filters.iter().map(filter::describe).collect(),
        bytes: Bytes(source.stored_bytes()),
        is_estimate: false,
    }
}

fn new_storage(dataset: &Dataset, bytes: Bytes) -> StorageInfo {
    let (layout, compression) = match dataset.storage {
        Storage::Contiguous => ("contiguous", Compression::None),
        Storage::Chunked { compression, .. } => ("chunked", compression),
    };
    let name = match compression {
        Compression::None => None,
        Compression::Gzip(level) => Some(format!("gzip {level}")),
        Compression::Zstd(level) => Some(format!("zstd {level}")),
        Compression::Lz4 => Some("lz4".to_owned()),
    };
    let shuffle = (name.is_some() && dataset.shuffle).then(|| "shuffle".to_owned());
    let checksums = dataset.checksums.then(|| "fletcher32".to_owned());
    StorageInfo {
        layout,
        chunk: dataset.chunk(),
        filters: shuffle.into_iter().chain(name).chain(checksums).collect(),
        bytes,
        is_estimate: compression != Compression::None,
    }
}

/// Estimates what a dataset will take: exactly where nothing is compressed, else by three of its chunks, with
/// one part in twenty on top.
fn estimated(source: &SourceDataset, dataset: &Dataset) -> Result<Bytes> {
    let Storage::Chunked { rows, compression } = dataset.storage else {
        return Ok(Bytes(dataset.bytes()));
    };
    let chunks = dataset.chunks();
    let chunk_bytes = rows * dataset.row_bytes() + 4 * u64::from(dataset.checksums);
    if compression == Compression::None || chunks == 0 || chunk_bytes == 0 {
        return Ok(Bytes(chunks * chunk_bytes));
    }
    let reader = RowReader::raw(source.clone())?;
    // A chunk at the end that is not full says little about the others.
    let full = (dataset.rows() / rows).max(1);
    let mut looked_at = vec![0, full / 2, full - 1];
    looked_at.dedup();
    let (mut stored, mut count) = (0, 0);
    for chunk in looked_at {
        let stretch = chunk * rows..((chunk + 1) * rows).min(dataset.rows());
        let length = (stretch.end - stretch.start) * dataset.row_bytes();
        let mut bytes = vec![0; length as usize];
        reader.read(stretch, &mut bytes)?;
        stored += write::stored_bytes(dataset, bytes)?.0;
        count += 1;
    }
    let mean = stored / count;
    Ok(Bytes(chunks * (mean + mean / 20)))
}
