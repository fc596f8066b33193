//! `vramfit.data.Loader`, the Rust half: batches whose memory Python looks into and gives back.

use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyRuntimeWarning;
use pyo3::ffi;
use pyo3::prelude::*;
use vramfit_core::{Bytes, Error, ErrorKind, Result};
use vramfit_data::hdf5::Scalar;
use vramfit_data::load::{
    Column, ColumnRequest, Lease, Loader, PartRequest, Request, Set, Stats, Turn,
};
use vramfit_data::order::{Last, Manner, State, World};

use crate::error::raise;

/// How long Python waits in one piece: afterwards Ctrl-C is looked for.
const TURN: Duration = Duration::from_millis(100);

/// How long it waits for a batch to be dropped, at first; twice as long each time.
const FIRST_WAIT: Duration = Duration::from_millis(1);

/// For so long JAX may still hold what its computations and transfers have read, when all that the program can see
/// of them is done.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// After so long without memory for a batch a program whose other threads may drop one is told that it has all of it.
const TELL_AFTER: Duration = Duration::from_secs(5);

/// And after so long it is an error.
const GIVE_UP_AFTER: Duration = Duration::from_secs(300);

/// The memory of one column of a batch, to be looked into by the buffer protocol. It goes back to the loader
/// when nothing in Python, and nothing in JAX, looks into it any more.
#[pyclass(frozen, module = "vramfit._native")]
pub(crate) struct BatchMemory {
    length: usize,
    /// Where the memory of the lease is; it stays there as long as the lease lives.
    address: AtomicPtr<u8>,
    _lease: Lease,
}

impl BatchMemory {
    fn new(mut lease: Lease) -> Self {
        let bytes = lease.bytes_mut();
        BatchMemory {
            length: bytes.len(),
            address: AtomicPtr::new(bytes.as_mut_ptr()),
            _lease: lease,
        }
    }
}

#[pymethods]
impl BatchMemory {
    fn __len__(&self) -> usize {
        self.length
    }

    #[allow(unsafe_code, reason = "the buffer protocol is spoken in C")]
    #[allow(clippy::needless_pass_by_value, reason = "as PyO3 hands it")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let (address, length) = (this.address.load(Ordering::Relaxed), this.length as isize);
        // SAFETY: the memory belongs to the lease in this object, which the view keeps alive and which
        // Rust does not look into any more. `view` is the caller's, as the protocol has it.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address.cast(), length, 0, flags) };
        match filled {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }
}

/// `vramfit.data.arguments.LoaderOptions`, where its fields are documented.
#[derive(FromPyObject)]
struct PyLoaderOptions {
    path: PathBuf,
    columns: Vec<ColumnArgument>,
    batch_size: u64,
    memory: String,
    seed: u64,
    shuffle: bool,
    drop_last: bool,
    super_batch: Option<u64>,
    split: Option<(String, f64, String, u64)>,
    shard: (u64, u64),
    threads: Option<usize>,
    floats: Option<String>,
    narrow: bool,
    poison: bool,
}

impl TryFrom<PyLoaderOptions> for Request {
    type Error = Error;

    fn try_from(options: PyLoaderOptions) -> Result<Self> {
        let (rank, processes) = options.shard;
        let columns = options.columns.into_iter().map(column);
        Ok(Request {
            file: options.path,
            columns: columns.collect::<Result<_>>()?,
            batch_size: options.batch_size,
            super_batch: options.super_batch,
            budget: options.memory.parse::<Bytes>()?,
            seed: options.seed,
            shuffle: options.shuffle,
            last: if options.drop_last {
                Last::Drop
            } else {
                Last::Pad
            },
            part: options.split.map(part).transpose()?,
            world: World { rank, processes },
            threads: options.threads,
            floats: options.floats.as_deref().map(scalar).transpose()?,
            narrow: options.narrow,
            poison: options.poison,
        })
    }
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

    /// Does something with the loader without the interpreter.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Loader) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(&mut self.lock()))
            .map_err(|error| raise(py, &error))
    }
}

/// What Python gets of a batch: the memory of each column, rows that are real, the position behind it.
type NextBatch = (Vec<BatchMemory>, Vec<u64>, (u64, u64));

/// A dataset as Python asks for it: path (with a field), type.
pub(crate) type ColumnArgument = (String, Option<String>);

/// What a row of a column is: the column's name, the type, the shape.
pub(crate) type RowForm = (String, &'static str, Vec<u64>);

#[pymethods]
impl BatchLoader {
    #[new]
    fn new(py: Python<'_>, options: PyLoaderOptions) -> PyResult<Self> {
        let open = || Loader::open(options.try_into()?);
        let loader = py.detach(open).map_err(|error| raise(py, &error))?;
        Ok(BatchLoader {
            loader: Mutex::new(loader),
        })
    }

    /// The name, type and shape of a row of each column.
    #[getter]
    fn columns(&self, py: Python<'_>) -> Vec<RowForm> {
        py.detach(|| forms(self.lock().columns()))
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

    #[getter]
    fn threads(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().plan().threads)
    }

    /// Batches that the budget has room for, where the program keeps them.
    #[getter]
    fn max_batches(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().plan().max_sets)
    }

    #[getter]
    fn buffer_count(&self, py: Python<'_>) -> usize {
        py.detach(|| self.lock().plan().sets)
    }

    /// Batches, rows, bytes; seconds of reading, filling, idleness and waiting; bytes held and made.
    fn stats(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, [f64; 4], u64, u64)> {
        let stats: Stats = self.with(py, |loader| loader.stats())?;
        let times = [stats.reading, stats.filling, stats.idle, stats.waiting];
        let Stats {
            batches,
            rows,
            bytes,
            held_bytes,
            buffer_bytes,
            ..
        } = stats;
        let seconds = times.map(|time| time.as_secs_f64());
        Ok((batches, rows, bytes, seconds, held_bytes, buffer_bytes))
    }

    fn start(&self, py: Python<'_>, epoch: u64, position: u64) -> PyResult<()> {
        self.with(py, |loader| loader.start(epoch, position))
    }

    /// The memory of each column of the next batch, how many rows of each batch in it are real, and the position
    /// behind it; None at the end of the epoch.
    fn next(&self, py: Python<'_>) -> PyResult<Option<NextBatch>> {
        let mut starved_since: Option<Instant> = None;
        let mut is_told = false;
        let mut patience = Duration::ZERO;
        loop {
            let wait = |loader: &mut Loader| Ok((loader.wait(TURN, patience)?, loader.position()));
            let (turn, position) = self.with(py, wait)?;
            match turn {
                Turn::Batch(filled) => {
                    let columns = filled.columns.into_iter().map(BatchMemory::new);
                    return Ok(Some((columns.collect(), filled.valid, position)));
                }
                Turn::End => return Ok(None),
                Turn::Waiting { starved: false } => starved_since = None,
                Turn::Waiting { starved: true } => {
                    let since = match starved_since {
                        Some(since) => since.elapsed(),
                        None => {
                            wait_for_jax(py)?;
                            starved_since = Some(Instant::now());
                            patience = Duration::ZERO;
                            drop_what_jax_is_done_with(py)?;
                            continue;
                        }
                    };
                    drop_what_jax_is_done_with(py)?;
                    patience = (patience * 2).clamp(FIRST_WAIT, TURN);
                    let limit = match (has_other_threads(py)?, is_jax_running(py)) {
                        (true, _) => GIVE_UP_AFTER,
                        // Nobody else can drop a batch.
                        (false, true) => SETTLE_TIMEOUT,
                        (false, false) => Duration::ZERO,
                    };
                    if since >= limit {
                        return Err(raise(py, &self.starved(py)?));
                    }
                    if since >= TELL_AFTER && !is_told {
                        is_told = true;
                        let text = self.starved(py)?.message().to_owned();
                        let text = std::ffi::CString::new(text)?;
                        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &text, 2)?;
                    }
                }
            }
            py.check_signals()?;
        }
    }

    /// The rows of the file that an epoch has at the positions from `start` to `end`.
    fn file_rows(&self, py: Python<'_>, epoch: u64, start: u64, end: u64) -> Vec<u64> {
        py.detach(|| self.lock().file_rows(epoch, start..end))
    }

    fn stop(&self, py: Python<'_>) {
        py.detach(|| self.lock().stop());
    }

    /// What has to be kept to go on behind the last batch, or from another position.
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

    /// Goes on from a state, and returns what is worth a word about the file.
    fn restore(&self, py: Python<'_>, state: &str, force: bool) -> PyResult<Option<String>> {
        self.with(py, |loader| {
            loader.restore(&State::parse_json(state)?, force)
        })
    }
}

impl BatchLoader {
    fn starved(&self, py: Python<'_>) -> PyResult<Error> {
        let (sets, memory, all) = self.with(py, |loader| {
            let plan = loader.plan();
            let kept = loader.stats()?.held_bytes;
            Ok((
                (plan.max_sets, Bytes(kept)),
                plan.budget,
                loader.budget_to_keep_all()?,
            ))
        })?;
        let (sets, kept) = sets;
        Ok(Error::new(
            ErrorKind::InvalidArgument,
            format!(
                "the program keeps all {sets} batches ({kept}) that the memory of {memory} has room for, and no other can be made \
                 before it drops one"
            ),
        )
        .hint(format!(
            "drop batches you are done with, or keep copies (`np.array(batch[\"x\"])`); to keep all of an epoch: \
             `memory=\"{}MiB\"`",
            all.0 >> 20
        )))
    }
}

/// Whether JAX has been started, so that it may hold batches that no Python object refers to.
fn is_jax_running(py: Python<'_>) -> bool {
    let backends = || {
        let modules = py.import("sys")?.getattr("modules")?;
        let bridge = modules.get_item("jax._src.xla_bridge")?;
        bridge.getattr("_backends")?.is_truthy()
    };
    // It is not imported, or is of a release that keeps them elsewhere.
    backends().unwrap_or(false)
}

/// Waits until what JAX computes and transfers is done, because that reads from batches.
fn wait_for_jax(py: Python<'_>) -> PyResult<()> {
    if !is_jax_running(py) {
        return Ok(());
    }
    let jax = py.import("jax")?;
    for array in jax.call_method0("live_arrays")?.try_iter()? {
        // A computation that failed is no business of the loader's, nor is an array that was deleted.
        let _ = array?.call_method0("block_until_ready");
    }
    Ok(())
}

/// Whether the program has threads beside this one, which may drop batches.
fn has_other_threads(py: Python<'_>) -> PyResult<bool> {
    let count = py.import("threading")?.call_method0("active_count")?;
    Ok(count.extract::<usize>()? > 1)
}

/// Asks for memory that JAX has finished with but not let go of.
///
/// What a computation or a transfer has read from is put on a list when it is done, and the list is
/// gone through by JAX's next call or by Python's garbage collector. While the program waits for a batch
/// it makes no call, so without this it could wait for ever.
fn drop_what_jax_is_done_with(py: Python<'_>) -> PyResult<()> {
    // The youngest generation is the least work; JAX hears of any.
    py.import("gc")?.call_method1("collect", (0,)).map(drop)
}

pub(crate) fn forms(columns: &[Column]) -> Vec<RowForm> {
    let form = |column: &Column| {
        let rows = column.rows();
        let shape = rows.row_shape().to_vec();
        (column.name().to_owned(), rows.scalar().name(), shape)
    };
    columns.iter().map(form).collect()
}

pub(crate) fn column((name, to): ColumnArgument) -> Result<ColumnRequest> {
    Ok(ColumnRequest {
        name,
        to: to.as_deref().map(scalar).transpose()?,
    })
}

pub(crate) fn scalar(name: &str) -> Result<Scalar> {
    Scalar::from_name(name).ok_or_else(|| {
        let names: Vec<_> = Scalar::ALL
            .iter()
            .map(|it| format!("`{}`", it.name()))
            .collect();
        refused(format!("there is no type `{name}`"))
            .hint(format!("the types are {}", names.join(", ")))
    })
}

fn part((set, share, manner, seed): (String, f64, String, u64)) -> Result<PartRequest> {
    Ok(PartRequest {
        set: match set.as_str() {
            "train" => Set::Train,
            "validation" => Set::Validation,
            other => {
                return Err(refused(format!("there is no set `{other}` of a split"))
                    .hint("the sets are `train` and `validation`"));
            }
        },
        share,
        manner: match manner.as_str() {
            "spread" => Manner::Spread,
            "tail" => Manner::Tail,
            other => {
                return Err(refused(format!("rows are not chosen by `{other}`"))
                    .hint("they are chosen by `spread` or `tail`"));
            }
        },
        seed,
    })
}

fn refused(what: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, what)
}
