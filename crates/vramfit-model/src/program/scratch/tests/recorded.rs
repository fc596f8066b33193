//! The ranges against what a GPU took (`fixtures/gpu/`, `scripts/record/library_scratch.py`): each case
//! that was recorded, as the instructions that JAX makes of it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::*;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/gpu");
const RECORDED: [&str; 2] = ["h100-80g-jax-0.11.2", "h200-141g-jax-0.11.2"];
const F16: i32 = 10;
const BF16: i32 = 16;

/// What a case took.
#[derive(Deserialize)]
struct Taken {
    /// While it ran, beside results and temporaries; `None` where compiling took more.
    execution: Option<u64>,
    /// Of custom calls in the plan.
    workspaces: Vec<(String, u64)>,
    /// Bytes of the block of temporaries.
    temporaries: u64,
}

/// A case by its name, such as `eigh_float32_64x256x256`.
struct Case<'a> {
    function: &'a str,
    element_type: i32,
    shape: Vec<i64>,
}

impl<'a> Case<'a> {
    fn parse(name: &'a str) -> Option<Case<'a>> {
        let types = [("_float32_", F32), ("_float64_", F64), ("_complex64_", C64)];
        let types = types.into_iter().chain([("_bfloat16_", BF16), ("_float16_", F16)]);
        let (function, rest, element_type) = types
            .filter_map(|(word, number)| name.split_once(word).map(|(a, b)| (a, b, number)))
            .next()?;
        let shape = rest.split('x').map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Case { function, element_type, shape })
    }

    fn array(&self) -> ShapeProto {
        array(self.element_type, &self.shape)
    }

    fn complex(&self, shape: &[i64]) -> ShapeProto {
        array(if self.element_type == F64 { C128 } else { C64 }, shape)
    }

    fn batch(&self) -> &[i64] {
        &self.shape[..self.shape.len() - 2]
    }

    /// A transform over the last dimensions, so many of them.
    fn transform(&self, kind: i32, rank: usize) -> Vec<ScratchNeed> {
        let mut spectrum = self.shape.clone();
        let mut lengths = self.shape[self.shape.len() - rank..].to_vec();
        let last = spectrum.last_mut().expect("a dimension");
        let (operand, result) = match kind {
            // Real to complex: half of the last dimension.
            2 => {
                *last = *last / 2 + 1;
                (self.array(), self.complex(&spectrum))
            }
            3 => {
                *last = (*last - 1) * 2;
                lengths = vec![*last];
                (self.complex(&self.shape), array(self.element_type, &spectrum))
            }
            _ => (self.complex(&self.shape), self.complex(&self.shape)),
        };
        vec![fft(kind, &lengths, operand, result)]
    }

    /// A decomposition by these routines, one after the other.
    fn decomposition(&self, routines: &[&str]) -> Vec<ScratchNeed> {
        let mut values = self.batch().to_vec();
        values.push(self.shape.iter().rev().take(2).copied().min().expect("a matrix"));
        let result = tuple(&[self.array(), array(self.element_type, &values)]);
        let operands = [self.array(), array(self.element_type, &values)];
        let needs = routines.iter().map(|name| {
            call(&format!("cusolver_{name}_ffi"), &operands, result.clone()).expect("a routine")
        });
        needs.collect()
    }

    fn needs(&self) -> Vec<ScratchNeed> {
        match self.function {
            "rfft" => self.transform(2, 1),
            "irfft" => self.transform(3, 1),
            "fft" => self.transform(0, 1),
            "fft2" => self.transform(0, 2),
            "fftn" => self.transform(0, 3),
            "rfftn" => self.transform(2, 3),
            "eigh" => self.decomposition(&["syevd"]),
            "lu" => self.decomposition(&["getrf"]),
            "cholesky" => self.decomposition(&["potrf"]),
            "qr" => self.decomposition(&["geqrf", "orgqr"]),
            _ => Vec::new(),
        }
    }
}

/// Returns what each case took on each GPU.
fn read_cases() -> impl Iterator<Item = (String, Taken)> {
    RECORDED.into_iter().flat_map(|gpu| {
        let path = format!("{FIXTURES}/{gpu}/library_scratch.json");
        let text = std::fs::read_to_string(path).expect("the fixture");
        let cases: BTreeMap<String, Taken> =
            serde_json::from_str(&text).expect("JSON of the recorder");
        cases
    })
}

#[test]
fn what_routines_took_while_they_ran_is_within_their_ranges() {
    let mut checked = 0;
    for (name, taken) in read_cases() {
        let Some(case) = Case::parse(&name) else {
            continue;
        };
        let needs = case.needs();
        let (Some(bytes), false) = (taken.execution, needs.is_empty()) else {
            continue;
        };
        // They run one after the other, and the pool rounds each request up.
        let low = needs.iter().map(|need| need.low_bytes).max().expect("not empty");
        let high = needs.iter().map(|need| need.high_bytes).max().expect("not empty");
        let high = high.next_multiple_of(256);
        assert!((low..=high).contains(&bytes), "{name}: {bytes}, range {low} to {high}");
        checked += 1;
    }
    assert_eq!(checked, 140);
}

#[test]
fn workspaces_of_attention_are_known_to_the_byte() {
    let mut checked = 0;
    for (name, taken) in read_cases() {
        let Some(rest) = name.strip_prefix("attention_") else {
            continue;
        };
        let words: Vec<&str> = rest.split('_').collect();
        let kind = if words[0] == "float16" { F16 } else { BF16 };
        let numbers: Vec<i64> =
            words[1].replace("of", "x").split('x').map(|it| it.parse().expect("a size")).collect();
        let [batch, sequence, heads, shared, size] = numbers[..] else {
            panic!("{name}");
        };
        let queries = array(kind, &[batch, sequence, heads, size]);
        let keys = array(kind, &[batch, sequence, shared, size]);
        let none = array(ElementType::U8.0, &[0]);
        let forward = tuple(&[queries.clone(), none.clone()]);
        let backward = tuple(&[queries.clone(), keys.clone(), keys.clone(), none]);
        let operands = [queries, keys.clone(), keys];
        for ((target, bytes), result) in taken.workspaces.iter().zip([forward, backward]) {
            let need = call(target, &operands, result).expect("attention");
            assert_eq!((need.high_bytes, need.phase), (*bytes, ScratchPhase::Plan), "{name}");
            checked += 1;
        }
    }
    assert_eq!(checked, 36);
}

#[test]
fn what_sorts_have_in_the_plan_is_within_their_bound() {
    let mut checked = 0;
    for (name, taken) in read_cases() {
        let sort = Case::parse(&name).filter(|case| case.function == "sort");
        let Some(case) = sort.filter(|_| !taken.workspaces.is_empty()) else {
            continue;
        };
        // XLA's own sort has the positions of the numbers beside them, to keep equal ones in order.
        let positions = array(S32, &case.shape);
        let operands = [case.array(), positions.clone()];
        let instruction = HloInstructionProto {
            opcode: "sort".into(),
            shape: Some(tuple(&operands)),
            ..HloInstructionProto::default()
        };
        let need = need(&operands, instruction).expect("a sort");
        let planned = 4 * case.shape.iter().product::<i64>() as u64;
        assert!(taken.temporaries - planned <= need.high_bytes, "{name}: {need:?}");
        checked += 1;
    }
    assert_eq!(checked, 8);
}
