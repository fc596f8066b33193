//! The native part of `vramfit.data.Loader`: batches whose memory Python borrows by the buffer protocol.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};
use vramfit_analysis::{Bytes, Error, Result};
use vramfit_data::hdf5::{ByteStorage, Scalar};
use vramfit_data::load::{
    BatchPoll, Column, ColumnOptions, DerivedColumn, DerivedKind, Loader, LoaderOptions,
    Normalization, SampleSelection, SplitOptions, SplitSet, Stats,
};
use vramfit_data::order::{Fold, LoaderState, RemainderPolicy, ShardOptions, SplitMode};
use vramfit_data::sample::{RowRanges, SampleOptions};
use vramfit_data::statistics::{compute_statistics, serialize_statistics};

use crate::batch_memory::BatchMemory;
use crate::error::raise;
use crate::jax_buffers::{
    collect_unreferenced_buffers, has_other_threads, is_jax_running, wait_for_jax,
};

/// Longest wait without checking for signals such as Ctrl-C.
const WAIT_SLICE: Duration = Duration::from_millis(100);

/// How long it waits at first for a batch to be dropped; this doubles each time.
const FIRST_STARVED_TIMEOUT: Duration = Duration::from_millis(1);

/// How long JAX may still hold what its computations and transfers have read after they are done.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// After so long without a free buffer, a program with other threads that may drop a batch is warned.
const WARN_AFTER: Duration = Duration::from_secs(5);

/// And after so long it is an error.
const ABORT_AFTER: Duration = Duration::from_secs(300);

/// `vramfit.data.arguments.LoaderOptions`, where its fields are documented.
#[derive(FromPyObject)]
pub(crate) struct PyLoaderOptions {
    files: Vec<PathBuf>,
    columns: Vec<ColumnArgument>,
    samples: String,
    trim: bool,
    mask: bool,
    batch_size: u64,
    memory: String,
    seed: u64,
    shuffle: bool,
    drop_last: bool,
    is_partial: bool,
    stacked_batches: Option<u64>,
    selected_samples: Option<(PyBackedBytes, Option<u64>)>,
    selected_groups: Option<Vec<String>>,
    split: Option<SplitArgument>,
    weights: Option<PyBackedBytes>,
    shard: (u64, u64),
    threads: Option<usize>,
    floats: Option<String>,
    narrow: bool,
    unpack: bool,
    allow_unclosed: bool,
    index: Option<PathBuf>,
    poison: bool,
}

impl TryFrom<PyLoaderOptions> for LoaderOptions {
    type Error = Error;

    fn try_from(options: PyLoaderOptions) -> Result<Self> {
        let (index, count) = options.shard;
        let columns = options.columns.into_iter().map(parse_column);
        let samples = options.selected_samples.map(|(ranges, mask_length)| {
            SampleSelection::Samples { ranges: parse_ranges(&ranges), mask_length }
        });
        let groups = options.selected_groups.map(SampleSelection::Groups);
        Ok(LoaderOptions {
            files: options.files,
            columns: columns.collect::<Result<_>>()?,
            samples: SampleOptions::parse_json(&options.samples)?,
            trim: options.trim,
            mask: options.mask,
            selection: samples.or(groups),
            batch_size: options.batch_size,
            stacked_batches: options.stacked_batches,
            budget: Bytes::parse_memory(&options.memory)?,
            seed: options.seed,
            shuffle: options.shuffle,
            remainder: if options.drop_last { RemainderPolicy::Drop } else { RemainderPolicy::Pad },
            is_partial: options.is_partial,
            split: options.split.map(parse_split).transpose()?,
            weights: options.weights.map(|bytes| parse_numbers(&bytes)),
            shard: ShardOptions { index, count },
            threads: options.threads,
            float_type: options.floats.as_deref().map(parse_scalar).transpose()?,
            narrow: options.narrow,
            unpack: options.unpack,
            allow_unclosed: options.allow_unclosed,
            index: options.index,
            poison: options.poison,
        })
    }
}

/// Statistics of all rows that the options select, as JSON: a list with an object for each column.
#[pyfunction]
pub(crate) fn compute_column_statistics(
    py: Python<'_>,
    options: PyLoaderOptions,
) -> PyResult<String> {
    let compute = || {
        let found = compute_statistics(options.try_into()?, &mut |_, _| {})?;
        serialize_statistics(&found.columns)
    };
    py.detach(compute).map_err(|error| raise(py, &error))
}

/// A loader with its reader threads.
#[pyclass(frozen, module = "vramfit._native")]
pub(crate) struct BatchLoader {
    loader: Mutex<Loader>,
}

impl BatchLoader {
    fn lock(&self) -> MutexGuard<'_, Loader> {
        self.loader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `work` with the loader, detached from the interpreter.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Loader) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(&mut self.lock())).map_err(|error| raise(py, &error))
    }
}

/// The memory of each column of a batch (a list of bytes where elements refer to some), its real rows, and the position
/// after it.
type NextBatch<'py> = (Vec<Bound<'py, PyAny>>, Vec<u64>, (u64, u64));

/// The path of a dataset (with a field), the type to convert it to, the rows that it is shifted by, the rows of a
/// window, whether it has one row for each ragged sample, the means and deviations to normalize it with, whether its
/// elements are text or bytes, and whether its rows are on the last axis.
pub(crate) type ColumnArgument =
    (String, Option<String>, i64, Option<u64>, bool, Option<(Vec<f64>, Vec<f64>)>, bool, bool);

/// The set, the fractions for validation and tests, how these are chosen, whether by group, and the seed.
type SplitArgument = (String, f64, f64, Option<(u64, u64)>, String, Option<bool>, u64);

/// The name of a column, and the type and shape of its rows.
pub(crate) type ColumnInfo = (String, &'static str, Vec<u64>);

#[pymethods]
impl BatchLoader {
    #[new]
    fn new(py: Python<'_>, options: PyLoaderOptions) -> PyResult<Self> {
        let open = || Loader::open(options.try_into()?);
        let loader = py.detach(open).map_err(|error| raise(py, &error))?;
        Ok(BatchLoader { loader: Mutex::new(loader) })
    }

    /// The name, type and shape of a row of each column.
    #[getter]
    fn columns(&self, py: Python<'_>) -> Vec<ColumnInfo> {
        py.detach(|| column_infos(self.lock().columns()))
    }

    /// What each column says that follows the others, the number of the column it is about, and the type and shape of
    /// a sample.
    #[getter]
    fn derived_columns(
        &self,
        py: Python<'_>,
    ) -> Vec<(&'static str, usize, &'static str, [u64; 1])> {
        let form = |column: &DerivedColumn| {
            let name = match column.kind {
                DerivedKind::Mask => "mask",
                DerivedKind::SegmentIds => "segment_ids",
                DerivedKind::Positions => "positions",
            };
            (name, column.column, column.scalar().name(), [column.length])
        };
        py.detach(|| self.lock().derived_columns().iter().map(form).collect())
    }

    /// Samples of a batch, all processes together; no more than an epoch has, where the last batch may be partial.
    #[getter]
    fn batch_size(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lock().options().batch_size)
    }

    #[getter]
    fn rows(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.lock().rows())
    }

    #[getter]
    fn batches(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |loader| loader.batches())
    }

    #[getter]
    fn position(&self, py: Python<'_>) -> (u64, u64) {
        py.detach(|| self.lock().position())
    }

    #[getter]
    fn plan(&self, py: Python<'_>) -> String {
        py.detach(|| self.lock().plan().to_text())
    }

    #[getter]
    fn engine(&self, py: Python<'_>) -> &'static str {
        py.detach(|| self.lock().plan().choice.engine.name())
    }

    #[getter]
    fn warning(&self, py: Python<'_>) -> Option<String> {
        py.detach(|| self.lock().plan().choice.warning.clone())
    }

    /// What a reader should know of files that were not closed.
    #[getter]
    fn unclosed_files(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.lock().unclosed_files().to_vec())
    }

    #[getter]
    fn threads(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().plan().threads)
    }

    /// Batches that the budget allows if the program keeps them.
    #[getter]
    fn max_batches(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().plan().max_buffers)
    }

    #[getter]
    fn buffer_count(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().plan().buffers)
    }

    /// Batches, rows, bytes; seconds of reading, filling, idling and waiting; bytes held and allocated.
    fn stats(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, [f64; 4], u64, u64)> {
        let stats: Stats = self.with(py, |loader| loader.stats())?;
        let times = [stats.reading, stats.filling, stats.idle, stats.waiting];
        let Stats { batches, rows, bytes, held_bytes, buffer_bytes, .. } = stats;
        let seconds = times.map(|time| time.as_secs_f64());
        Ok((batches, rows, bytes, seconds, held_bytes, buffer_bytes))
    }

    fn start(&self, py: Python<'_>, epoch: u64, position: u64) -> PyResult<()> {
        self.with(py, |loader| loader.start(epoch, position))
    }

    /// The next batch; None at the end of the epoch.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<NextBatch<'py>>> {
        let mut starved_since: Option<Instant> = None;
        let mut has_warned = false;
        let mut starved_timeout = Duration::ZERO;
        loop {
            let wait = |loader: &mut Loader| {
                Ok((loader.poll_batch(WAIT_SLICE, starved_timeout)?, loader.position()))
            };
            let (poll, position) = self.with(py, wait)?;
            match poll {
                BatchPoll::Ready(batch) => {
                    let mut objects = batch.objects.into_iter();
                    let columns =
                        batch.columns.into_iter().map(|column| match objects.next().flatten() {
                            Some(objects) => {
                                let each = objects.iter().map(|object| PyBytes::new(py, object));
                                PyList::new(py, each.collect::<Vec<_>>()).map(Bound::into_any)
                            }
                            None => Bound::new(py, BatchMemory::new(column)).map(Bound::into_any),
                        });
                    return Ok(Some((columns.collect::<PyResult<_>>()?, batch.valid, position)));
                }
                BatchPoll::Finished => return Ok(None),
                BatchPoll::Pending { is_starved: false } => starved_since = None,
                BatchPoll::Pending { is_starved: true } => {
                    let since = match starved_since {
                        Some(since) => since.elapsed(),
                        None => {
                            wait_for_jax(py)?;
                            starved_since = Some(Instant::now());
                            starved_timeout = Duration::ZERO;
                            collect_unreferenced_buffers(py)?;
                            continue;
                        }
                    };
                    collect_unreferenced_buffers(py)?;
                    starved_timeout =
                        (starved_timeout * 2).clamp(FIRST_STARVED_TIMEOUT, WAIT_SLICE);
                    let limit = match (has_other_threads(py)?, is_jax_running(py)) {
                        (true, _) => ABORT_AFTER,
                        // Nobody else can drop a batch.
                        (false, true) => SETTLE_TIMEOUT,
                        (false, false) => Duration::ZERO,
                    };
                    if since >= limit {
                        return Err(raise(py, &self.starved_error(py)?));
                    }
                    if since >= WARN_AFTER && !has_warned {
                        has_warned = true;
                        let text = self.starved_error(py)?.message().to_owned();
                        let text = std::ffi::CString::new(text)?;
                        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)?;
                    }
                }
            }
            py.check_signals()?;
        }
    }

    /// The rows of the file at the positions `start` to `end` of an epoch.
    fn file_rows(&self, py: Python<'_>, epoch: u64, start: u64, end: u64) -> Vec<u64> {
        py.detach(|| self.lock().file_rows(epoch, start..end))
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.lock().stop());
    }

    /// What to save to resume after the last batch, or from another position.
    #[pyo3(signature = (position=None))]
    fn state(&self, py: Python<'_>, position: Option<(u64, u64)>) -> String {
        py.detach(|| {
            let loader = self.lock();
            let state = match position {
                None => loader.state(),
                Some((epoch, position)) => loader.state_at(epoch, position),
            };
            state.to_json()
        })
    }

    /// Restores a state, and returns a note about the file if there is one.
    fn restore(&self, py: Python<'_>, state: &str, force: bool) -> PyResult<Option<String>> {
        self.with(py, |loader| loader.restore(&LoaderState::parse_json(state)?, force))
    }
}

impl BatchLoader {
    fn starved_error(&self, py: Python<'_>) -> PyResult<Error> {
        let (batches, held, budget, required) = self.with(py, |loader| {
            let (plan, held) = (loader.plan(), Bytes(loader.stats()?.held_bytes));
            let required = loader.budget_to_keep_all()?;
            Ok((plan.max_buffers, held, plan.budget, required))
        })?;
        Ok(Error::invalid_argument(format!(
                "the program holds all {batches} batches ({held}) that a memory budget of {budget} allows; no other can be \
                 made until it drops one"
            ),
        )
        .hint(format!(
            "drop batches you are done with, or keep copies (`np.array(batch[\"x\"])`); to keep all batches of an epoch, \
             use `memory=\"{}MiB\"`",
            required.0 >> 20
        )))
    }
}

pub(crate) fn column_infos(columns: &[Column]) -> Vec<ColumnInfo> {
    let form = |column: &Column| {
        let kind = match column.bytes() {
            None => column.scalar().name(),
            Some(ByteStorage::Text) => "text",
            Some(ByteStorage::Opaque) => "opaque bytes",
            Some(ByteStorage::Variable) => "bytes",
        };
        (column.name().to_owned(), kind, column.shape())
    };
    columns.iter().map(form).collect()
}

pub(crate) fn parse_column(
    (name, to, shift, length, per_sample, normalize, as_bytes, is_last_axis): ColumnArgument,
) -> Result<ColumnOptions> {
    let to = to.as_deref().map(parse_scalar).transpose()?;
    let normalize = normalize.map(|(mean, std)| {
        Normalization::new(mean, &std)
            .map_err(|error| error.context(format!("the normalization of `{name}`")))
    });
    let normalization = normalize.transpose()?;
    Ok(ColumnOptions { name, to, is_last_axis, shift, length, per_sample, normalization, as_bytes })
}

/// Reads 64-bit floats.
fn parse_numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<8>().0.iter().map(|number| f64::from_le_bytes(*number)).collect()
}

/// Reads ranges of numbers: the first one of each, and the one after the last, as 64-bit numbers.
fn parse_ranges(bytes: &[u8]) -> RowRanges {
    let (numbers, _) = bytes.as_chunks::<8>();
    let (pairs, _) = numbers.as_chunks::<2>();
    pairs.iter().map(|pair| pair.map(u64::from_le_bytes)).map(|[start, end]| start..end).collect()
}

pub(crate) fn parse_scalar(name: &str) -> Result<Scalar> {
    Scalar::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Scalar::ALL.iter().map(|it| format!("`{}`", it.name())).collect();
        Error::invalid_argument(format!("unknown type `{name}`"))
            .hint(format!("supported types: {}", names.join(", ")))
    })
}

fn parse_split(
    (set, fraction, test_fraction, fold, mode, by_group, seed): SplitArgument,
) -> Result<SplitOptions> {
    let unknown = |what: &str, name: &str, hint: &str| {
        Err(Error::invalid_argument(format!("unknown {what} `{name}`")).hint(hint))
    };
    Ok(SplitOptions {
        set: match set.as_str() {
            "train" => SplitSet::Train,
            "validation" => SplitSet::Validation,
            "test" => SplitSet::Test,
            other => return unknown("split", other, "use `train`, `validation` or `test`"),
        },
        fraction,
        test_fraction,
        fold: fold.map(|(fold, folds)| Fold::new(fold, folds)).transpose()?,
        by_group,
        mode: match mode.as_str() {
            "spread" => SplitMode::Spread,
            "tail" => SplitMode::Tail,
            other => return unknown("split mode", other, "use `spread` or `tail`"),
        },
        seed,
    })
}
