//! The sources of a virtual dataset: where they are, and which elements are theirs.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use vramfit_base::{Error, ErrorKind, Result};

use super::dataset::{Dataset, MAX_CHUNK_BYTES};
use super::virtual_elements::ElementMap;
use crate::hdf5::object::ObjectFinder;
use crate::hdf5::selection::AxisSelection;
use crate::hdf5::sibling::{open_sibling, sibling_path};
use crate::hdf5::virtual_map::{Mapping, unsupported};
use crate::hdf5::{Container, Datatype};

/// More pairs of sources are not compared.
const MAX_COMPARED_PAIRS: u64 = 1 << 27;
/// More sources than any virtual dataset has; a name with the number of a block ends with the first that is missing.
const MAX_BLOCKS: u64 = 1 << 20;

/// A dataset that has elements of a virtual one.
#[derive(Clone, Debug)]
pub struct VirtualSource {
    /// Which rows of the virtual dataset it has elements of.
    pub rows: Range<u64>,
    /// The dataset.
    pub dataset: Arc<Dataset>,
    /// Whether its rows are on its last axis.
    pub(super) is_last_axis: bool,
    pub(super) placement: Placement,
    /// Which of its elements are mapped, and to which of the virtual dataset.
    selections: Arc<[Vec<AxisSelection>; 2]>,
}

/// Where the elements of a source belong.
#[derive(Clone, Debug)]
pub(super) enum Placement {
    /// Its rows, from this one on, are the rows of the virtual dataset. So it is with all sources, or with none.
    Rows(u64),
    /// Elements of its rows belong to elements of rows.
    Elements(Arc<ElementMap>),
}

impl VirtualSource {
    /// Returns how many rows of the virtual dataset have the elements of so many rows of the source.
    pub fn rows_of(&self, rows: u64) -> u64 {
        match &self.placement {
            Placement::Rows(_) => rows,
            Placement::Elements(map) => map.rows_of(rows),
        }
    }

    /// Returns the bytes that are read together before their elements are put where they belong.
    pub fn buffer_bytes(&self) -> u64 {
        match &self.placement {
            Placement::Rows(_) => 0,
            Placement::Elements(map) => map.buffer_bytes(&self.dataset),
        }
    }
}

/// What a virtual dataset is made of.
pub(super) struct VirtualParts {
    /// Its shape; axes without limit are as long as what its sources have.
    pub(super) shape: Vec<u64>,
    pub(super) sources: Vec<VirtualSource>,
    /// Files of which a source is missing, so that its elements have the fill value.
    pub(super) missing: Vec<PathBuf>,
}

/// A source, and which of its elements belong where.
struct Part {
    dataset: Arc<Dataset>,
    source: Vec<AxisSelection>,
    target: Vec<AxisSelection>,
}

/// Opens the sources of a virtual dataset. Where one is missing, its elements have the fill value if the writer gave one;
/// otherwise nobody could tell them from zeros.
pub(super) fn open(
    container: &Container,
    shape: &[u64],
    datatype: &Datatype,
    has_fill: bool,
    mappings: &[Mapping],
) -> Result<VirtualParts> {
    let mut found =
        VirtualParts { shape: shape.to_vec(), sources: Vec::new(), missing: Vec::new() };
    let unlimited = |mapping: &Mapping| {
        let target = mapping.target.as_deref().unwrap_or_default();
        target.iter().position(AxisSelection::is_unlimited)
    };
    // Axes without limit are as long as their sources, and as the limited ones need.
    let mut is_open = vec![false; shape.len()];
    for axis in mappings.iter().filter_map(unlimited) {
        let is_open = is_open.get_mut(axis);
        *is_open.ok_or_else(|| unsupported("a selection has another number of dimensions"))? = true;
    }
    let mut parts = Vec::new();
    for mapping in mappings {
        let mut sources = Sources { container, datatype, has_fill, missing: &mut found.missing };
        match unlimited(mapping) {
            None => {
                let target = select(mapping.target.as_deref(), shape)?;
                if mapping.file.is_numbered() || mapping.dataset.is_numbered() {
                    return Err(unsupported("a name has the number of a block, and there is one"));
                }
                if let Some(dataset) = sources.open(mapping, 0)? {
                    let source = select(mapping.source.as_deref(), dataset.shape())?;
                    parts.push(Part { dataset, source, target });
                } else if !has_fill {
                    return Err(missing(&found.missing));
                }
            }
            Some(axis) if mapping.file.is_numbered() || mapping.dataset.is_numbered() => {
                add_blocks(&mut parts, &mut sources, mapping, axis)?;
            }
            Some(axis) => add_unlimited(&mut parts, &mut sources, mapping, axis)?,
        }
    }
    // A limited source that is missing has its place as well.
    let limited = mappings.iter().filter(|mapping| unlimited(mapping).is_none());
    let limited = limited.filter_map(|mapping| mapping.target.as_deref());
    let targets: Vec<_> = parts.iter().map(|part| part.target.as_slice()).chain(limited).collect();
    for (number, length) in found.shape.iter_mut().enumerate().filter(|(it, _)| is_open[*it]) {
        let ends = targets.iter().filter_map(|target| target.get(number)?.end());
        *length = ends.max().unwrap_or(0);
    }
    found.sources = place(parts, &found.shape)?;
    Ok(found)
}

/// Opens sources, and notes those that are missing.
struct Sources<'a> {
    container: &'a Container,
    datatype: &'a Datatype,
    has_fill: bool,
    missing: &'a mut Vec<PathBuf>,
}

impl Sources<'_> {
    /// Opens the source of a mapping; none if its file or dataset is not there.
    fn open(&mut self, mapping: &Mapping, block: u64) -> Result<Option<Arc<Dataset>>> {
        let (file, path) = (mapping.file.fill(block), mapping.dataset.fill(block));
        let container = match file.as_str() {
            "." => self.container.clone(),
            file => {
                let beside = sibling_path(self.container, file)?;
                if matches!(beside.try_exists(), Ok(false)) {
                    self.missing.push(beside);
                    return Ok(None);
                }
                open_sibling(self.container, file)?
            }
        };
        let mut finder = ObjectFinder::new(&container);
        if let Err(error) = finder.find(&path) {
            // Nothing is there.
            if error.kind() == ErrorKind::InvalidArgument {
                self.missing.push(container.source().path().to_owned());
                return Ok(None);
            }
            return Err(error);
        }
        let dataset = Dataset::open_source(&mut finder, &path)?;
        if dataset.datatype() != self.datatype {
            return Err(unsupported("a source has a different datatype"));
        }
        Ok(Some(Arc::new(dataset)))
    }
}

fn missing(files: &[PathBuf]) -> Error {
    let file = files.last().map(|file| file.display().to_string()).unwrap_or_default();
    Error::new(
        ErrorKind::Io,
        format!("`{file}` does not exist or has no such dataset, and a virtual dataset has elements of it"),
    )
    .hint("put the file where it was when the virtual dataset was made; missing sources are read as fill values only where the virtual dataset was made with `fillvalue=`")
}

/// Returns what a selection selects, which ends inside of a shape.
fn select(selection: Option<&[AxisSelection]>, shape: &[u64]) -> Result<Vec<AxisSelection>> {
    let Some(axes) = selection else {
        return Ok(shape.iter().map(|&length| AxisSelection::all(length)).collect());
    };
    if axes.len() != shape.len() {
        return Err(unsupported("a selection has another number of dimensions"));
    }
    if axes.iter().any(AxisSelection::is_unlimited) {
        return Err(unsupported("a selection without limit belongs to one that has a limit"));
    }
    if axes.iter().zip(shape).any(|(axis, length)| axis.end().is_none_or(|end| end > *length)) {
        return Err(unsupported("a selection extends past the end of its dataset"));
    }
    Ok(axes.to_vec())
}

/// Adds the sources of a mapping whose names have the number of a block, up to the first that is missing.
fn add_blocks(
    parts: &mut Vec<Part>,
    sources: &mut Sources<'_>,
    mapping: &Mapping,
    axis: usize,
) -> Result<()> {
    let all = mapping.target.as_deref().unwrap_or_default();
    if all[axis].block == u64::MAX || all.iter().filter(|axis| axis.is_unlimited()).count() > 1 {
        return Err(unsupported("a block without limit has the number of a block in its name"));
    }
    for block in 0..MAX_BLOCKS {
        let known = sources.missing.len();
        let Some(dataset) = sources.open(mapping, block)? else {
            // That is how the end is found, and no loss.
            sources.missing.truncate(known);
            return Ok(());
        };
        let mut target = all.to_vec();
        let start = block.checked_mul(all[axis].stride);
        let start = start.and_then(|offset| offset.checked_add(all[axis].start));
        let start = start.ok_or_else(|| unsupported("a selection has no end"))?;
        target[axis] = AxisSelection { start, stride: 1, count: 1, block: all[axis].block };
        let source = select(mapping.source.as_deref(), dataset.shape())?;
        parts.push(Part { dataset, source, target });
    }
    Err(unsupported("it has more than a million sources"))
}

/// Adds a source of which as much is mapped as it has.
fn add_unlimited(
    parts: &mut Vec<Part>,
    sources: &mut Sources<'_>,
    mapping: &Mapping,
    axis: usize,
) -> Result<()> {
    let Some(dataset) = sources.open(mapping, 0)? else {
        return match sources.has_fill {
            true => Ok(()),
            false => Err(missing(sources.missing)),
        };
    };
    let target = mapping.target.as_deref().unwrap_or_default();
    let source = mapping.source.as_deref().unwrap_or_default();
    let is_unlimited = AxisSelection::is_unlimited;
    let from = source.iter().position(is_unlimited);
    let count = |axes: &[AxisSelection]| axes.iter().filter(|axis| is_unlimited(axis)).count();
    let (Some(from), 1, 1) = (from, count(target), count(source)) else {
        return Err(unsupported("a selection without limit belongs to one that has a limit"));
    };
    if source.len() != dataset.shape().len() {
        return Err(unsupported("a selection has another number of dimensions"));
    }
    // The slices across both axes must be the same elements.
    let elements = |axes: &[AxisSelection]| {
        axes.iter().try_fold(1_u64, |all, axis| all.checked_mul(axis.len()))
    };
    if elements(&target[..axis]) != elements(&source[..from])
        || elements(&target[axis + 1..]) != elements(&source[from + 1..])
    {
        return Err(unsupported("a selection without limit is mapped to another axis"));
    }
    let slices = source[from].count_before(dataset.shape()[from]);
    if slices == 0 {
        return Ok(());
    }
    if target[axis].end_of(slices).is_none() {
        return Err(unsupported("a selection has no end"));
    }
    // Whole blocks, and what there is of one more, on both sides.
    let whole = |axis: &AxisSelection| match axis.block == u64::MAX || axis.stride == axis.block {
        true => slices,
        false => slices - slices % axis.block,
    };
    let mut ends = [whole(&target[axis]), whole(&source[from]), slices];
    ends.sort_unstable();
    let mut begin = 0;
    for end in ends {
        if begin == end {
            continue;
        }
        let numbers = begin..end;
        let (Some(there), Some(here)) =
            (source[from].slice(&numbers), target[axis].slice(&numbers))
        else {
            return Err(unsupported("blocks without limit have different lengths"));
        };
        let (mut source, mut target) = (source.to_vec(), target.to_vec());
        (source[from], target[axis]) = (there, here);
        let source = select(Some(&source), dataset.shape())?;
        parts.push(Part { dataset: Arc::clone(&dataset), source, target });
        begin = end;
    }
    Ok(())
}

/// Finds how the elements of the sources are placed: as whole rows, if that is so for all of them.
fn place(parts: Vec<Part>, shape: &[u64]) -> Result<Vec<VirtualSource>> {
    let mut kept = Vec::new();
    for part in parts {
        if shape.is_empty() || part.dataset.shape().is_empty() {
            return Err(unsupported("a source is a scalar"));
        }
        // What is selected of the virtual dataset must be inside.
        let target = select(Some(&part.target), shape)?;
        let elements = |axes: &[AxisSelection]| {
            axes.iter().try_fold(1_u64, |all, axis| all.checked_mul(axis.len()))
        };
        if elements(&target) != elements(&part.source) {
            return Err(unsupported("a source has another number of elements than its place"));
        }
        if elements(&target) != Some(0) {
            kept.push(part);
        }
    }
    kept.sort_by_key(|part| part.target[0].start);
    ensure_apart(&kept)?;
    let parts = kept.into_iter().map(|Part { dataset, source, target }| Oriented {
        shape: dataset.shape().to_vec(),
        is_last_axis: false,
        selections: Arc::new([source.clone(), target.clone()]),
        part: Part { dataset, source, target },
    });
    place_rows(parts.collect(), shape)
}

/// A source whose axis of rows is the first one here.
struct Oriented {
    part: Part,
    /// The shape of its dataset.
    shape: Vec<u64>,
    is_last_axis: bool,
    selections: Arc<[Vec<AxisSelection>; 2]>,
}

/// Places sources, sorted by their first row, in a dataset with rows on its first axis.
fn place_rows(parts: Vec<Oriented>, shape: &[u64]) -> Result<Vec<VirtualSource>> {
    let is_rows = |Oriented { part, shape: source_shape, .. }: &Oriented| {
        let is_all = |axes: &[AxisSelection], shape: &[u64]| {
            axes[0].is_contiguous()
                && axes.iter().zip(shape).skip(1).all(|(axis, length)| axis.len() == *length)
        };
        is_all(&part.target, shape)
            && is_all(&part.source, source_shape)
            && shape[1..] == source_shape[1..]
    };
    let are_rows = parts.iter().all(is_rows);
    let place = |it: Oriented| {
        let Part { dataset, source, target } = it.part;
        let rows = target[0].start..target[0].end().unwrap_or(u64::MAX);
        let placement = match are_rows {
            true => Placement::Rows(source[0].start),
            false => {
                let map = ElementMap::new(&source, &it.shape, &target, shape)?;
                if map.buffer_bytes(&dataset) > MAX_CHUNK_BYTES {
                    return Err(unsupported("rows of a source exceed 1 GiB"));
                }
                Placement::Elements(Arc::new(map))
            }
        };
        let Oriented { is_last_axis, selections, .. } = it;
        Ok(VirtualSource { rows, dataset, is_last_axis, placement, selections })
    };
    parts.into_iter().map(place).collect()
}

/// Places sources where the rows of the virtual dataset are on its last axis.
pub(super) fn place_last_axis(
    sources: &[VirtualSource],
    shape: &[u64],
) -> Result<Vec<VirtualSource>> {
    let orient = |it: &VirtualSource| {
        let [source, target] = &*it.selections;
        let is_last_axis = is_along_last_axis(source, target)?;
        let dataset = Arc::clone(&it.dataset);
        let (mut source, mut target) = (source.clone(), target.clone());
        let mut shape = dataset.shape().to_vec();
        target.rotate_right(1);
        if is_last_axis {
            source.rotate_right(1);
            shape.rotate_right(1);
        }
        let part = Part { dataset, source, target };
        Ok(Oriented { part, shape, is_last_axis, selections: Arc::clone(&it.selections) })
    };
    let mut parts = sources.iter().map(orient).collect::<Result<Vec<_>>>()?;
    parts.sort_by_key(|it| it.part.target[0].start);
    let mut shape = shape.to_vec();
    shape.rotate_right(1);
    place_rows(parts, &shape)
}

/// Returns whether the last axis of a source is that of the virtual dataset, and not its first axis, and checks that it is
/// one of both. Elements are numbered with the last axis first, so both have the same axes where those with one
/// element do not count.
fn is_along_last_axis(source: &[AxisSelection], target: &[AxisSelection]) -> Result<bool> {
    if target.last().is_none_or(|axis| axis.len() == 1) {
        // All elements of the source are those of one row.
        return Ok(false);
    }
    let lengths = |axes: &[AxisSelection]| -> Vec<u64> {
        axes.iter().map(AxisSelection::len).filter(|length| *length != 1).collect()
    };
    if lengths(source) != lengths(target) {
        return Err(unsupported("rows are on the last axis, and a source has other axes"));
    }
    match source.iter().rposition(|axis| axis.len() != 1) {
        Some(axis) if axis + 1 == source.len() => Ok(source.len() > 1),
        Some(0) => Ok(false),
        _ => Err(unsupported(
            "rows are on the last axis, and on an axis of a source that is neither its first nor its last",
        )),
    }
}

/// Checks that no element has two sources, for which the format says nothing.
fn ensure_apart(parts: &[Part]) -> Result<()> {
    let mut pairs = 0_u64;
    let mut open: Vec<&Part> = Vec::new();
    for part in parts {
        open.retain(|other| other.target[0].end() > Some(part.target[0].start));
        pairs += open.len() as u64;
        if pairs > MAX_COMPARED_PAIRS {
            return Err(unsupported("too many sources have elements of the same rows"));
        }
        let overlaps = |other: &&&Part| {
            other.target.iter().zip(&part.target).all(|(one, other)| one.overlaps(other))
        };
        if open.iter().any(|other| overlaps(&other)) {
            return Err(unsupported("two sources overlap"));
        }
        open.push(part);
    }
    Ok(())
}
