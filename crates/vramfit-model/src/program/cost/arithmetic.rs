//! Matrix products and convolutions: how many operations they are, and how fast a GPU does them.

use super::MAX_DEPTH;
use super::backend_config::BackendConfig;
use super::rates::Rates;
use super::traffic::is_matrix_library;
use crate::program::hlo::{HloGraph, arrays};
use crate::program::proto::HloInstructionProto;
use crate::program::shape::Shape;

/// The matrix arithmetic of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Arithmetic {
    /// Microseconds at the rates of large products.
    pub(super) time_us: f64,
    /// Microseconds that no kernel can stay below.
    pub(super) low_us: f64,
    /// Whether there is any.
    pub(super) is_matrix: bool,
    /// Whether the kernel does something that nothing here can price.
    pub(super) is_unknown: bool,
}

/// Instructions whose time does not follow from their shapes, beside collectives and custom calls.
const UNKNOWN: &[&str] = &[
    "cholesky",
    "custom-call",
    "fft",
    "infeed",
    "outfeed",
    "recv",
    "rng",
    "rng-bit-generator",
    "select-and-scatter",
    "send",
    "sort",
    "topk",
    "triangular-solve",
];
const COLLECTIVES: &[&str] = &["all-", "collective-", "ragged-", "reduce-scatter"];

impl Arithmetic {
    pub(super) fn new(
        graph: &HloGraph<'_>,
        rates: Rates<'_>,
        instruction: &HloInstructionProto,
    ) -> Self {
        let mut sum = Arithmetic::default();
        sum.add(graph, rates, instruction, MAX_DEPTH);
        sum
    }

    fn add(
        &mut self,
        graph: &HloGraph<'_>,
        rates: Rates<'_>,
        it: &HloInstructionProto,
        depth: usize,
    ) {
        let opcode = it.opcode.as_str();
        match opcode {
            "fusion" if depth > 0 => {
                for fused in graph.called(it).flat_map(|fused| &fused.instructions) {
                    self.add(graph, rates, fused, depth - 1);
                }
            }
            "dot" | "convolution" => self.add_matrix(graph, rates, it),
            "custom-call" if is_matrix_library(&it.custom_call_target) => {
                self.add_matrix(graph, rates, it);
            }
            _ => {
                self.is_unknown |= UNKNOWN.contains(&opcode)
                    || COLLECTIVES.iter().any(|prefix| opcode.starts_with(prefix));
            }
        }
    }

    fn add_matrix(&mut self, graph: &HloGraph<'_>, rates: Rates<'_>, it: &HloInstructionProto) {
        self.is_matrix = true;
        let shape = |number| arrays(graph.operand_of(it, number)?).into_iter().next();
        let shapes = (shape(0), shape(1), arrays(it).into_iter().next());
        let (Some(left), Some(right), Some(result)) = shapes else {
            self.is_unknown = true;
            return;
        };
        let is_convolution = it.opcode == "convolution" || it.custom_call_target.contains("conv");
        let operations = if is_convolution {
            convolution_operations(it, &left, &right, &result)
        } else {
            let dims = it.dot_dimension_numbers.as_ref();
            let dims = dims.map(|dims| dims.lhs_contracting_dimensions.clone());
            let dims = dims.unwrap_or_else(|| BackendConfig::read(it).contracting_dimensions());
            let contracted = dims.iter().map(|dim| size(&left, *dim)).product::<f64>();
            2.0 * result.elements() as f64 * contracted
        };
        let precision = it.precision_config.as_ref();
        let is_highest = precision.is_some_and(|it| it.operand_precision.contains(&2));
        let has_algorithm = precision.is_some_and(|it| it.algorithm != 0);
        let (Some(rate), Some(max_rate)) =
            (rates.matmul_tflops(&left, is_highest), rates.max_tflops(&left, is_highest))
        else {
            self.is_unknown = true;
            return;
        };
        self.time_us += operations / rate / 1e6;
        // Winograd's and other algorithms need fewer operations for a convolution with a window; a chosen
        // algorithm for a product may use a faster type.
        let window = it.window.iter().flat_map(|window| &window.dimensions);
        let has_window = is_convolution && window.clone().any(|dimension| dimension.size != 1);
        if !has_window && !has_algorithm {
            self.low_us += operations / max_rate / 1e6;
        }
    }
}

/// Returns the size of a dimension.
fn size(shape: &Shape, dim: i64) -> f64 {
    let dim = usize::try_from(dim).ok().and_then(|dim| shape.dims.get(dim));
    dim.copied().unwrap_or(1) as f64
}

/// Each element of the output takes a product and a sum for each weight of its feature. In the backward
/// passes output and kernel are other operands, and the operations are as many.
fn convolution_operations(
    it: &HloInstructionProto,
    left: &Shape,
    right: &Shape,
    result: &Shape,
) -> f64 {
    let target = it.custom_call_target.as_str();
    let (output, kernel) = match target {
        _ if target.contains("BackwardInput") => (left, right),
        _ if target.contains("BackwardFilter") => (right, result),
        _ => (result, right),
    };
    let dims = it.convolution_dimension_numbers.as_ref();
    let features = dims.map_or(1.0, |dims| size(kernel, dims.kernel_output_feature_dimension));
    2.0 * output.elements() as f64 * kernel.elements() as f64 / features.max(1.0)
}
