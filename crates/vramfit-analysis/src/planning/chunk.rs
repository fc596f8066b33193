//! Functions that are mapped over many elements, by `jax.vmap` or for a Jacobian, computed for some of them at a time.

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::row::Row;
use super::settings::PlanSettings;
use super::site::short_name;

/// Functions whose chunks are searched: those mapped over most elements.
const MAX_FUNCTIONS: usize = 3;
/// The search for the fewest chunks that fit ends when fewer by this part of them do not.
const PRECISION: u64 = 16;
/// Chunks that save less than this part of the peak are not made smaller.
const MIN_SAVED_PART: u64 = 100;

/// What maps a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MappingTransform {
    /// `jax.vmap`, over what the program says.
    #[default]
    Vmap,
    /// `jax.jacfwd`, and so `jax.hessian`: the derivatives by all inputs.
    Jacfwd,
    /// `jax.jacrev`: the derivatives of all outputs.
    Jacrev,
}

impl MappingTransform {
    fn name(self) -> &'static str {
        match self {
            MappingTransform::Vmap => "jax.vmap",
            MappingTransform::Jacfwd => "jax.jacfwd",
            MappingTransform::Jacrev => "jax.jacrev",
        }
    }

    /// What it maps over.
    fn elements(self) -> &'static str {
        match self {
            MappingTransform::Vmap => "elements",
            MappingTransform::Jacfwd => "inputs",
            MappingTransform::Jacrev => "outputs",
        }
    }

    /// What somebody writes for each of some elements.
    fn edit(self) -> &'static str {
        match self {
            MappingTransform::Vmap => "`jax.vmap` for each",
            MappingTransform::Jacfwd => "`jax.vmap` of `jax.jvp` for each",
            MappingTransform::Jacrev => {
                "`jax.vmap` of the function that `jax.vjp` returns for each"
            }
        }
    }
}

/// A function that is mapped, in chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Where it is defined: `file.py:line (function)`.
    pub function: String,
    /// Over how many elements it is mapped.
    pub elements: u64,
    /// How many are computed at a time.
    pub batch_size: u64,
    /// What maps it.
    #[serde(default)]
    pub transform: MappingTransform,
}

/// A function that a program maps, as `vramfit._plan` records it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct MappedFunction {
    /// Where it is defined: `file.py:line (function)`.
    #[serde(rename = "mapped")]
    pub definition: String,
    /// Over how many elements.
    pub elements: u64,
    /// By what.
    pub transform: MappingTransform,
}

impl Chunk {
    /// Says why it is none, if so.
    pub(super) fn check(&self) -> Result<(), String> {
        let Chunk { function, elements, batch_size, .. } = self;
        if (1..*elements).contains(batch_size) {
            return Ok(());
        }
        Err(format!("{}: {batch_size} is no chunk of {elements} elements", short_name(function)))
    }

    /// Returns into how many chunks the elements are divided.
    fn count(&self) -> u64 {
        self.elements.div_ceil(self.batch_size.max(1))
    }

    /// Returns how much of what could run side by side does not, from 0 to 1.
    pub(super) fn serial_share(&self) -> f64 {
        1.0 - 1.0 / self.count().max(1) as f64
    }

    /// Describes it in a few words.
    pub(super) fn describe(&self) -> String {
        let Chunk { function, elements, batch_size, transform } = self;
        let (place, name, what) = (short_name(function), transform.name(), transform.elements());
        format!("{place}: `{name}` over {elements} {what}, {batch_size} at a time")
    }

    /// Says that no larger chunk fits, where that was measured: with the smallest of `others`, none of which fits for
    /// certain.
    pub fn describe_bound<'a>(
        &self,
        settings: &PlanSettings,
        others: impl Iterator<Item = &'a Row>,
    ) -> Option<String> {
        let same = others.filter_map(|row| match &row.plan.chunks[..] {
            [chunk] if chunk.is_of_same(self) && row.plan.settings == *settings => {
                Some((chunk.batch_size, row.may_fit()))
            }
            _ => None,
        });
        let (larger, may_fit) = same.filter(|(size, _)| *size > self.batch_size).min()?;
        let not = if may_fit { "may not" } else { "do not" };
        let (place, what) = (short_name(&self.function), self.transform.elements());
        Some(format!(
            "{place}: {} {what} at a time fit, {larger} {not}; both are measured",
            self.batch_size
        ))
    }

    /// Returns what somebody would write instead.
    pub(super) fn edit(&self) -> String {
        format!(
            "{}: `jax.lax.map` over chunks of {} {}, with {}",
            short_name(&self.function),
            self.batch_size,
            self.transform.elements(),
            self.transform.edit()
        )
    }

    fn is_of_same(&self, other: &Chunk) -> bool {
        self.function == other.function && self.transform == other.transform
    }
}

/// Searches the largest chunks that fit.
#[derive(Clone, Debug, Default)]
pub(super) struct ChunkSearch {
    functions: Vec<MappedFunction>,
    /// What was proposed, whether it could be measured or not.
    proposed: Vec<Chunk>,
}

impl ChunkSearch {
    pub(super) fn new(mapped: &[MappedFunction]) -> Self {
        let mut functions: Vec<MappedFunction> = Vec::new();
        for function in mapped.iter().filter(|function| function.elements > 1) {
            let mut known = functions.iter_mut();
            match known.find(|known| known.is_same(function)) {
                Some(known) => known.elements = known.elements.max(function.elements),
                None => functions.push(function.clone()),
            }
        }
        functions.sort_by_key(|function| std::cmp::Reverse(function.elements));
        functions.truncate(MAX_FUNCTIONS);
        ChunkSearch { functions, proposed: Vec::new() }
    }

    /// Returns the plans to measure next; none if the program fits as it is, or the largest chunks are known.
    pub(super) fn next_round(&mut self, rows: &[Row]) -> Vec<Plan> {
        let Some(plain) = rows.iter().find(|row| row.plan.is_empty() && !row.fits()) else {
            return Vec::new();
        };
        let chunks = self.functions.iter().flat_map(|function| {
            let sizes = next_sizes(function, plain, rows).into_iter();
            sizes.map(|batch_size| Chunk {
                function: function.definition.clone(),
                elements: function.elements,
                batch_size,
                transform: function.transform,
            })
        });
        let new: Vec<Chunk> = chunks.filter(|chunk| !self.proposed.contains(chunk)).collect();
        self.proposed.extend_from_slice(&new);
        new.into_iter().map(|chunk| Plan { chunks: vec![chunk], ..Plan::default() }).collect()
    }
}

/// Returns the sizes of chunks of a function to measure next. It is their number that a loop costs, so only the smallest
/// chunks of each number are worth it.
fn next_sizes(function: &MappedFunction, plain: &Row, rows: &[Row]) -> Vec<u64> {
    let measured = rows.iter().filter_map(|row| Some((function.only_chunk_in(&row.plan)?, row)));
    let measured: Vec<(u64, &Row)> = measured.map(|(chunk, row)| (chunk.count(), row)).collect();
    let of = |fits: bool| measured.iter().filter(move |it| it.1.fits() == fits).map(|it| it.0);
    let counts = match of(true).min() {
        Some(fewest) => {
            let too_few = of(false).filter(|count| *count < fewest).max().unwrap_or(1);
            let gap = fewest - too_few;
            if gap <= (fewest / PRECISION).max(1) {
                return Vec::new();
            }
            // The two that divide what is not known yet.
            [too_few + (gap / 3).max(1), too_few + gap * 2 / 3]
        }
        None => {
            let saves =
                |row: &Row| row.peak_bytes + plain.peak_bytes / MIN_SAVED_PART < plain.peak_bytes;
            let is_in_vain = !measured.is_empty() && !measured.iter().any(|(_, row)| saves(row));
            let most = of(false).max().unwrap_or(1);
            if is_in_vain || most >= function.elements {
                return Vec::new();
            }
            [most.saturating_mul(4), most.saturating_mul(16)]
        }
    };
    let sizes = counts.map(|count| function.elements.div_ceil(count.min(function.elements)));
    let mut sizes = sizes.to_vec();
    sizes.dedup();
    sizes
}

impl MappedFunction {
    /// Returns its chunks in a plan that changes nothing else.
    fn only_chunk_in<'a>(&self, plan: &'a Plan) -> Option<&'a Chunk> {
        let [chunk] = &plan.chunks[..] else {
            return None;
        };
        let is_only = *plan == Plan { chunks: vec![chunk.clone()], ..Plan::default() };
        let is_same = chunk.function == self.definition && chunk.transform == self.transform;
        (is_only && is_same).then_some(chunk)
    }

    fn is_same(&self, other: &MappedFunction) -> bool {
        self.definition == other.definition && self.transform == other.transform
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(elements: u64) -> MappedFunction {
        mapped("a.py:3 (f)", elements)
    }

    fn mapped(definition: &str, elements: u64) -> MappedFunction {
        let transform = MappingTransform::Vmap;
        MappedFunction { definition: definition.to_owned(), elements, transform }
    }

    /// Searches where a chunk takes `each` bytes for an element, beside 100 of the program.
    fn search(elements: u64, each: u64, limit: u64) -> (Vec<Row>, Option<u64>) {
        let row = |plan: Plan, size: u64| Row {
            peak_bytes: 100 + each * size,
            fits: vec![Some(100 + each * size <= limit)],
            ..Row::of(plan)
        };
        let mut search = ChunkSearch::new(&[function(elements)]);
        let mut rows = vec![row(Plan::default(), elements)];
        loop {
            let plans = search.next_round(&rows);
            if plans.is_empty() {
                let fitting = rows.iter().filter(|row| row.fits());
                let of = |row: &Row| function(0).only_chunk_in(&row.plan).map(Chunk::count);
                let fewest = fitting.filter_map(of).min();
                return (rows, fewest);
            }
            rows.extend(plans.into_iter().map(|plan| {
                let size = plan.chunks[0].batch_size;
                row(plan, size)
            }));
        }
    }

    #[test]
    fn the_fewest_chunks_that_fit_are_found() {
        for limit in [101, 110, 163, 164, 165, 200, 300, 433, 434, 500, 600, 1099] {
            let (rows, fewest) = search(1000, 1, limit);
            let best = 1000_u64.div_ceil(limit - 100);
            let found = fewest.expect("some fit");
            assert!(best <= found && found - best <= found / PRECISION, "{limit}: {found}");
            assert!(rows.len() <= 14, "{limit}: {} dry runs", rows.len());
        }
    }

    #[test]
    fn what_was_measured_beside_a_chunk_is_said() {
        let chunk = |batch_size| Chunk {
            function: "/x/a.py:3 (f)".to_owned(),
            elements: 96,
            batch_size,
            transform: MappingTransform::Vmap,
        };
        let measured = |fits: Option<bool>| {
            [48, 32, 6].map(|size| {
                let plan = Plan { chunks: vec![chunk(size)], ..Plan::default() };
                Row { fits: vec![fits], ..Row::of(plan) }
            })
        };
        let rows = measured(Some(false));
        let text =
            chunk(24).describe_bound(&PlanSettings::default(), rows.iter()).expect("larger ones");
        assert_eq!(text, "a.py:3 (f): 24 elements at a time fit, 32 do not; both are measured");
        let open = measured(None);
        let text = chunk(24).describe_bound(&PlanSettings::default(), open.iter()).expect("some");
        assert!(text.contains("24 elements at a time fit, 32 may not"), "{text}");
        assert_eq!(chunk(48).describe_bound(&PlanSettings::default(), rows.iter()), None);
        assert_eq!(chunk(24).describe(), "a.py:3 (f): `jax.vmap` over 96 elements, 24 at a time");
        let jacobian = Chunk { transform: MappingTransform::Jacfwd, ..chunk(24) };
        assert_eq!(jacobian.describe(), "a.py:3 (f): `jax.jacfwd` over 96 inputs, 24 at a time");
        assert_eq!(jacobian.describe_bound(&PlanSettings::default(), rows.iter()), None);
    }

    #[test]
    fn what_fits_or_cannot_is_not_searched() {
        assert_eq!(search(1000, 1, 1100).0.len(), 1);
        // No chunk is small enough.
        assert_eq!(search(1000, 1, 100).1, None);
        // Chunks save nothing.
        assert_eq!(search(1000, 0, 99).0.len(), 3);
        assert_eq!(search(1, 1, 50).0.len(), 1);
    }

    #[test]
    fn a_chunk_that_could_not_be_measured_is_not_proposed_again() {
        let mut search = ChunkSearch::new(&[function(64)]);
        let plain = Row { peak_bytes: 10, fits: vec![Some(false)], ..Row::of(Plan::default()) };
        let rows = [plain];
        assert_eq!(search.next_round(&rows).len(), 2);
        assert_eq!(search.next_round(&rows), []);
    }

    #[test]
    fn functions_that_are_mapped_over_most_come_first() {
        let of = mapped;
        let mapped = [of("a", 4), of("b", 9), of("a", 16), of("c", 1), of("d", 2), of("e", 3)];
        let names: Vec<String> =
            ChunkSearch::new(&mapped).functions.into_iter().map(|it| it.definition).collect();
        assert_eq!(names, ["a", "b", "e"]);
    }
}
