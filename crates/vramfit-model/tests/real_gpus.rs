//! Figures that real GPUs reported, against the catalog and the allocators' rules.
//!
//! Each row is what somebody posted in a public thread or what a public log says, with its source.
//! None of them was made by this project.

use vramfit_model::allocator::{
    self, AllocatorKind, PoolOptions, PoolSpace, SimulatedDeviceMemory,
};
use vramfit_model::gpu::find;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 2 * MIB;

/// Totals known to the byte.
const BYTES: &[(&str, u64, &str)] = &[
    ("v100-16g", 12_701_761_536 / 3 * 4, "mbirjax: bytes_limit at 0.75"),
    ("v100-32g", 25_554_419_712 / 3 * 4, "jax-ml/jax#27354: base limit at 0.75"),
    ("a100-40g-mig-1g.5gb", 3_825_205_248 + 1_275_068_416, "XLA's log: both pools"),
    ("a40", 35_714_334_720 / 3 * 4, "bytes_limit at 0.75"),
    ("b200-180g", 191_514_411_008, "182642.375 MiB"),
    ("b200-180g", 191_503_007_744, "pytorch/ao#4002: 182631.5 MiB"),
    ("gb200-186g", 197_890_015_232, "marin-community/marin#8508"),
    ("rtx-5090", 33_677_180_928, "deviceQuery"),
    ("rtx-5090", 33_680_457_728, "deviceQuery"),
    ("a100-40g", 42_298_834_944, "bottlerocket-os/bottlerocket#3873"),
    ("l4", 23_583_784_960, "bottlerocket-os/bottlerocket-kernel-kit#139"),
    ("t4", 15_843_721_216, "deviceQuery"),
    ("quadro-rtx-5000", 12_528_893_952 + 4_176_297_984, "XLA's log: both pools"),
    ("quadro-rtx-5000", 12_527_321_088 + 4_175_773_696, "XLA's log, later driver: both pools"),
    ("h100-80g", 81_081 * MIB, "marin-community/marin: base limit at 0.80"),
    ("gh200-96g", 97_280 * MIB, "deviceQuery"),
    ("gh200-96g", 96_768 * MIB, "deviceQuery"),
    ("gtx-1080-ti", 11_721_506_816, "deviceQuery"),
    ("a100-80g-mig-1g.10gb", 9_728 * MIB, "nvidia-smi"),
    ("a6000", 51_041_271_808, "48676.75 MiB"),
];

/// Totals that were printed in whole MiB (whether cut or rounded is not known).
const MEBIBYTES: &[(&str, u64)] = &[
    ("h200-141g", 143_156),
    ("a10g", 22_587),
    ("rtx-4080", 16_049),
    ("rtx-3060", 11_938),
    ("h100-pcie-80g", 81_008),
    ("rtx-pro-6000", 97_252),
    ("a100-pcie-80g", 81_049),
    ("p100-16g", 16_280),
    ("a100-pcie-40g", 40_326),
    ("v100-16g", 16_160),
    ("v100-16g", 16_130),
    ("a100-40g", 40_536),
    ("h100-80g", 81_082),
    ("h100-80g", 81_089),
    ("h100-80g", 81_090),
    ("t4", 14_930),
    ("t4", 15_079),
    ("t4", 15_095),
    ("t4", 15_102),
    ("t4", 15_109),
    ("rtx-3090", 24_268),
    ("rtx-3090", 24_259),
    ("rtx-4060-ti-16g", 15_948),
    ("rtx-4090", 24_124),
    ("rtx-6000-ada", 48_622),
    ("l40s", 45_589),
    ("rtx-2080-ti", 11_019),
];

/// Totals that PyTorch printed in GiB with two digits, in hundredths.
const HUNDREDTHS_OF_GIB: &[(&str, u64)] =
    &[("a100-80g", 7925), ("a800-80g", 7933), ("b200-180g", 17_835)];

#[test]
fn every_reported_total_lies_in_the_range_of_the_catalog() {
    for (name, bytes, source) in BYTES {
        let gpu = find(name).unwrap();
        let range = gpu.total_memory_bytes..=gpu.max_total_memory_bytes;
        assert!(range.contains(bytes), "{name}: {bytes} ({source}), {range:?}");
    }
    for (name, mib) in MEBIBYTES {
        let gpu = find(name).unwrap();
        let bytes = mib * MIB;
        assert!(gpu.total_memory_bytes < bytes + MIB, "{name}: {mib} MiB");
        assert!(gpu.max_total_memory_bytes > bytes - MIB, "{name}: {mib} MiB");
    }
    for (name, hundredths) in HUNDREDTHS_OF_GIB {
        let gpu = find(name).unwrap();
        let half = (1 << 30) / 200;
        let bytes = (hundredths << 30) / 100;
        assert!(gpu.total_memory_bytes <= bytes + half, "{name}");
        assert!(gpu.max_total_memory_bytes >= bytes - half, "{name}");
    }
}

fn options(
    kind: AllocatorKind,
    total_memory_bytes: u64,
    fraction: f64,
    jax_version: (u32, u32, u32),
) -> PoolOptions {
    PoolOptions {
        kind,
        total_memory_bytes,
        memory_fraction: fraction,
        jax_version,
        ..PoolOptions::default()
    }
}

/// What the C API makes of a fraction.
fn single(fraction: f32) -> f64 {
    f64::from(fraction)
}

#[test]
fn a_pool_is_the_total_times_the_fraction_in_32_bits_cut_to_whole_bytes() {
    let old = (0, 9, 2);
    for (total, fraction, pool, source) in [
        (81_081 * MIB, single(0.80), 68_015_673_538, "marin, H100"),
        (191_503_007_744, single(0.93), 178_097_798_571, "pytorch/ao#4002, B200"),
        (16_705_191_936, single(0.75), 12_528_893_952, "Lux.jl, Quadro RTX 5000"),
        (16_703_094_784, single(0.75), 12_527_321_088, "Lux.jl, Quadro RTX 5000"),
        (5_100_273_664, single(0.75), 3_825_205_248, "Lux.jl, A100 MIG 1g.5gb"),
        (16_935_682_048, single(0.75), 12_701_761_536, "mbirjax, V100"),
        (34_072_559_616, single(0.75), 25_554_419_712, "jax-ml/jax#27354, V100"),
        // EXLA gives the client a number of 64 bits.
        (6_203_179_008, 0.9, 5_582_861_107, "EXLA, GTX 1060"),
    ] {
        let limit = options(AllocatorKind::Bfc, total, fraction, old).limit_bytes();
        assert_eq!(limit, pool, "{source}");
    }
    // With a 32-bit fraction it would be some hundred bytes less.
    let by_jax = options(AllocatorKind::Bfc, 6_203_179_008, single(0.9), old).limit_bytes();
    assert_eq!(5_582_861_107 - by_jax, 148);
}

/// `GpuCudaMallocAsyncAllocator` printed this on an H100 with JAX 0.11 and a fraction of 0.70
/// (marin-community/marin#7024): the pool of `cuda_async` is not rounded to pages.
#[test]
fn the_threshold_of_cuda_async_is_not_rounded() {
    let options = options(AllocatorKind::CudaAsync, 81_081 * MIB, single(0.70), (0, 11, 0));
    assert_eq!(options.limit_bytes(), 59_513_712_445);
    assert_ne!(59_513_712_445 % PAGE, 0);
}

#[test]
fn both_pools_together_are_the_total() {
    for (total, pool, collective) in [
        (16_705_191_936, 12_528_893_952, 4_176_297_984),
        (16_703_094_784, 12_527_321_088, 4_175_773_696),
        (5_100_273_664, 3_825_205_248, 1_275_068_416),
    ] {
        let options = options(AllocatorKind::Bfc, total, 0.75, (0, 6, 2));
        assert_eq!(options.limit_bytes(), pool);
        assert_eq!(options.collective_limit_bytes(), collective);
        assert_eq!(pool + collective, total);
    }
}

/// Pools that XLA printed since it rounds them to pages. The total of the RTX 4060 Ti is one for
/// which the three rows agree; that is only possible when pools are rounded up (rounded down, the
/// first two need a total below 15950.5 MiB and the third one of at least 15952).
#[test]
fn since_0_10_2_pools_are_whole_pages() {
    let ends = |name: &str| {
        let gpu = find(name).unwrap();
        [gpu.total_memory_bytes, gpu.max_total_memory_bytes]
    };
    let new = (0, 10, 2);
    for (name, fraction, pool) in [
        ("rtx-4060-ti-16g", 0.75, 12_543_066_112),
        ("rtx-4060-ti-16g", 0.97, 16_221_470_720),
        ("rtx-pro-6000", 0.90, 91_779_760_128),
    ] {
        assert_eq!(pool % PAGE, 0);
        for total in ends(name) {
            let limit = options(AllocatorKind::Bfc, total, single(fraction), new).limit_bytes();
            assert_eq!(limit, pool, "{name} with {total}");
        }
    }
    for total in ends("rtx-4060-ti-16g") {
        let collective = options(AllocatorKind::Bfc, total, 0.75, new).collective_limit_bytes();
        assert_eq!(collective, 4_181_721_088);
    }
    // Of this one the GPU is not known.
    assert_eq!(2_965_372_928 % PAGE, 0);
}

/// mbirjax on a V100 whose memory others held: a pool of 3,228,616,192 bytes and, once they had let
/// go, the whole limit. The first is the limit made a tenth smaller thirteen times, in 32-bit floats
/// and whole blocks; nothing else gives this number.
#[test]
fn a_pool_that_the_driver_refuses_shrinks_by_tenths() {
    let total = 16_935_682_048;
    for free_bytes in [3_228_616_192 + PAGE, 3_587_351_296 - 1] {
        let options = options(AllocatorKind::Bfc, total, 0.75, (0, 9, 2));
        let mut pool = allocator::build(&options, Box::new(SimulatedDeviceMemory::new(free_bytes)));
        pool.allocate(4, 64, PoolSpace::Default).unwrap();
        assert_eq!(pool.stats().pool_bytes, Some(3_228_616_192), "{free_bytes}");
        assert_eq!(pool.stats().bytes_limit, Some(12_701_761_536));
        pool.allocate(2_431_167_744 - 256, 64, PoolSpace::Default).unwrap();
        assert_eq!(pool.stats().peak_bytes_in_use, 2_431_167_744);
        assert_eq!(pool.stats().pool_bytes, Some(3_228_616_192));
    }
}
