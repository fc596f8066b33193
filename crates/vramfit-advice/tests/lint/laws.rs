//! What holds for anything at all.

use proptest::prelude::*;
use vramfit_advice::lint::{LintInput, Packages, Severity, apply, autofix, lint};
use vramfit_model::host::{GpuMemory, Host, HostGpu, Mig, Process};
use vramfit_model::settings::{self, LateChange, ProcessStage, Version};

use super::*;

fn any_name() -> impl Strategy<Value = String> {
    let known: Vec<String> = settings::all()
        .iter()
        .filter(|setting| !setting.is_flag())
        .map(|setting| setting.name.clone())
        .chain(
            include_str!("../../src/lint/names/jax.tsv")
                .lines()
                .filter_map(|line| line.split('\t').next())
                .map(str::to_owned),
        )
        .collect();
    prop_oneof![
        4 => prop::sample::select(known.clone()),
        2 => (prop::sample::select(known), any::<prop::sample::Index>(), "[A-Z_]?").prop_map(
            |(name, at, letter)| {
                let at = at.index(name.len());
                format!("{}{letter}{}", &name[..at], &name[at + 1..])
            }
        ),
        1 => "(JAX|XLA|TF_GPU|NCCL|APPTAINERENV_XLA)_[A-Z_]{0,12}",
        1 => "SLURM_EXPORT_ENV",
    ]
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "",
            "0",
            "1",
            "true",
            "false",
            "FALSE",
            "no",
            "off",
            "0.5",
            "0.95",
            "1.0",
            "4.0",
            "75",
            "100",
            "-1",
            "75%",
            ".XX",
            "nan",
            "inf",
            "1e400",
            "1e-400",
            "platform",
            "cuda_async",
            "vmm",
            "address",
            "default",
            "cuda",
            "cpu",
            "gpu",
            "NONE",
            "allocator:platform",
            "memory_fraction:0.5",
            "a:b:c",
            "--xla_gpu_autotune_level=x -x y --xla_dump_to='a b'",
            "--xla_disable_hlo_passes=a --xla_tpu_a --xla_dump_too=1 xla_a",
        ])
        .prop_map(str::to_owned),
        "-{0,2}[a-z_]{0,9}=?[a-z0-9'\" ]{0,9}( -{0,2}[a-z_]{0,9}=?[a-z0-9'\"]{0,9}){0,3}",
        any::<f64>().prop_map(|number| number.to_string()),
        ".{0,20}",
    ]
}

fn any_gpu() -> impl Strategy<Value = HostGpu> {
    (
        0..3_u32,
        prop::option::of((any::<u64>(), any::<u64>(), any::<u64>())),
        0..3_u8,
        prop::collection::vec(prop::option::of(any::<u64>()), 0..3),
        prop::sample::select(vec!["NVIDIA H100 80GB HBM3", "something else", ""]),
    )
        .prop_map(|(index, memory, mig, processes, name)| HostGpu {
            index,
            name: name.to_owned(),
            memory: memory.map(|(total, reserved, free)| GpuMemory {
                // Figures that make no sense together, and those that do.
                total_bytes: total >> 24,
                reserved_bytes: (reserved % 2 == 0).then_some(reserved >> 32),
                used_bytes: 0,
                free_bytes: free >> 25,
            }),
            mig: match mig {
                0 => Mig::Off,
                1 => Mig::Parent,
                _ => Mig::Instance {
                    number: 0,
                    gpu_instance: Some(1),
                    parent_total_bytes: Some(80 * GIB),
                },
            },
            processes: processes
                .into_iter()
                .map(|used_bytes| Process { used_bytes, ..Process::default() })
                .collect(),
            ..HostGpu::default()
        })
}

fn any_surroundings() -> impl Strategy<Value = LintInput> {
    let versions: Vec<Option<Version>> =
        ["0.4.26", "0.4.31", "0.4.33", "0.6.2", "0.10.2", "0.11.0"]
            .iter()
            .map(|text| Some(text.parse().expect("a release")))
            .chain([None])
            .collect();
    (
        prop::collection::btree_map(any_name(), any_value(), 0..8),
        prop::sample::select(versions),
        prop::collection::vec(any_gpu(), 0..3),
        prop::option::of((any::<bool>(), any::<bool>())),
    )
        .prop_map(|(environment, jax, gpus, packages)| LintInput {
            environment,
            jax,
            host: Host { gpus, ..Host::default() },
            packages: packages.map(|(tensorflow, cuda_plugin)| Packages {
                tensorflow: tensorflow.then(|| "2.19.0".to_owned()),
                cuda_plugin,
                ..Packages::default()
            }),
            ..LintInput::default()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_error_can_be_mended(input in any_surroundings()) {
        let fixed = LintInput {
            environment: autofix(&input),
            ..input.clone()
        };
        let left = lint(&fixed);
        let errors: Vec<_> = left
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .collect();
        prop_assert!(errors.is_empty(), "{errors:#?}");
        // And nothing that a program could still do is left undone.
        prop_assert_eq!(apply(&fixed.environment, &left), fixed.environment);
    }

    #[test]
    fn late_settings_are_the_only_errors_that_no_program_can_mend(
        input in any_surroundings(),
        after_backend: bool,
    ) {
        let stage = if after_backend { ProcessStage::Started } else { ProcessStage::Imported };
        let changed = input.environment.iter().map(|(name, value)| LateChange {
            name: name.clone(),
            old: Some(value.clone()),
            new: Some(format!("{value}1")),
            site: "model.py:3".to_owned(),
            stage,
        });
        let late = LintInput {
            late: changed.collect(),
            ..input
        };
        for finding in lint(&late) {
            prop_assert!(
                finding.severity != Severity::Error
                    || finding.id == "set-too-late"
                    || !finding.changes.is_empty(),
                "{finding:#?}"
            );
        }
    }

    #[test]
    fn names_of_others_are_none_of_our_business(
        name in "[A-Z]{1,3}_[A-Z_]{0,9}",
        value in ".{0,9}",
    ) {
        prop_assume!(!name.starts_with("TF_") && !name.starts_with("XLA_"));
        prop_assume!(!name.starts_with("JAX_"));
        prop_assert_eq!(lint(&with(&[(&name, &value)])), []);
    }
}
