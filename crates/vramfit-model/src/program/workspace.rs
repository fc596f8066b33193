//! Scratch memory that the routines of CUDA's libraries ask for: part of a program's temporaries,
//! but no sign of how much the program computes.

use super::proto::{HloInstructionProto, HloModuleProto};
use super::shape::{ElementType, Shape};

/// How XLA calls cuBLAS, cuDNN and CUB, and what their workspaces are called here.
const LIBRARIES: &[(&str, &str)] = &[
    ("__cublas$", "cuBLAS workspace"),
    ("__cudnn$", "cuDNN workspace"),
    ("__cub$", "CUB workspace"),
];

/// Returns the bytes of the largest workspace in a module, 0 without any.
///
/// The calls come one after the other, so XLA puts their workspaces in the same place.
pub(super) fn largest(module: &HloModuleProto) -> u64 {
    module.instructions().filter_map(of_call).max().unwrap_or(0)
}

/// Returns the workspace of a library's routine: the last of its results, plain bytes.
fn of_call(call: &HloInstructionProto) -> Option<u64> {
    library(call)?;
    let result = call.shape.as_ref()?;
    let last = result.tuple_shapes.last()?;
    let is_bytes = ["s8", "u8"].contains(&ElementType(last.element_type).name());
    (is_bytes && last.dimensions.len() == 1).then(|| Shape::from_proto(last).bytes())
}

fn library(call: &HloInstructionProto) -> Option<&'static str> {
    let target = &call.custom_call_target;
    let mut libraries = LIBRARIES.iter();
    let found = libraries.find(|(prefix, _)| target.starts_with(prefix))?;
    Some(found.1)
}

/// Returns what a result of a call is called if it is the workspace of a library's routine.
pub(super) fn name_of(call: &HloInstructionProto, result: i64) -> Option<&'static str> {
    of_call(call)?;
    let results = call.shape.as_ref()?.tuple_shapes.len();
    let is_last = usize::try_from(result).is_ok_and(|result| result + 1 == results);
    library(call).filter(|_| is_last)
}

/// Returns `true` if an operation is called as the workspace of a library's routine is here.
pub fn is_name(operation: &str) -> bool {
    LIBRARIES.iter().any(|(_, name)| *name == operation)
}

#[cfg(test)]
mod tests {
    use super::super::proto::ShapeProto;
    use super::*;

    const S8: i32 = 2;
    const F32: i32 = 11;

    fn call(target: &str, results: &[ShapeProto]) -> HloInstructionProto {
        HloInstructionProto {
            custom_call_target: target.into(),
            shape: Some(ShapeProto::tuple(results)),
            ..HloInstructionProto::default()
        }
    }

    #[test]
    fn the_largest_workspace_counts_once() {
        let product = ShapeProto::array(F32, &[4, 4]);
        let bytes = |count| ShapeProto::array(S8, &[count]);
        let calls = vec![
            call("__cublas$lt$matmul", &[product.clone(), bytes(4 << 20)]),
            call("__cublas$gemm", &[product, bytes(1 << 20)]),
        ];
        assert_eq!(name_of(&calls[0], 1), Some("cuBLAS workspace"));
        assert_eq!((name_of(&calls[0], 0), name_of(&calls[0], -1)), (None, None));
        assert_eq!(largest(&HloModuleProto::of(calls)), 4 << 20);
    }

    #[test]
    fn results_that_are_no_workspace_do_not_count() {
        let product = ShapeProto::array(F32, &[4, 4]);
        let bytes = ShapeProto::array(S8, &[1 << 20]);
        let calls =
            vec![call("__cublas$gemm", &[bytes.clone(), product]), call("my_own_kernel", &[bytes])];
        assert_eq!(largest(&HloModuleProto::of(calls)), 0);
    }
}
