//! The buffers of a made-up training step.

use vramfit_analysis::report::{BufferLifetime, BufferLifetimes};

use super::MIB;

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const LAYERS: usize = 12;
const PARTS: [&str; 4] = ["attention/qkv", "attention/out", "mlp/up", "mlp/down"];

/// One training step: state at the bottom, activations in a heap, temporaries on its slopes.
pub(super) fn lifetimes(buffers: usize) -> BufferLifetimes {
    let mut dice = Dice(7);
    let state = (buffers / 10).clamp(6, 400);
    // Each activation comes with two temporaries on the way up and two on the way down.
    let activations = (buffers.saturating_sub(state) / 5).max(4);
    let steps = 2 * activations as u32;
    let mut all = Vec::with_capacity(buffers);
    let mut top = 0;
    for number in 0..state {
        let kind = if number % 3 == 0 { "parameters" } else { "optimizer_state" };
        let bytes = (1 + dice.below(24)) * MIB;
        let layer = number * LAYERS / state;
        let part = PARTS[number % 4];
        let label = match kind {
            "parameters" => format!("params/layer_{layer}/{part}/kernel"),
            _ => format!(
                "opt_state/{}/layer_{layer}/{part}",
                if number % 3 == 1 { "mu" } else { "nu" }
            ),
        };
        all.push(BufferLifetime {
            label,
            kind,
            offset: top,
            bytes,
            start: 0,
            end: steps - 1,
            note: "f32[1024,1024], argument of `train_step`".into(),
            stack: String::new(),
        });
        top += bytes;
    }
    let mut heap = Vec::new();
    for at in 0..activations {
        let layer = at * LAYERS / activations;
        let bytes = (64 + dice.below(4000)) * 1024;
        let line = 31 + (at % 4) * 9;
        all.push(BufferLifetime {
            label: format!("loop_fusion.{at}"),
            kind: "activations",
            offset: top,
            bytes,
            start: at as u32,
            end: steps - 1 - at as u32,
            note: format!(
                "bf16[32,{},256] in layer_{layer}/{}, model.py:{line} (block)",
                bytes / 16384,
                PARTS[at % 4]
            ),
            stack: format!("model.py:{line} (block) < train.py:88 (main)"),
        });
        top += bytes;
        heap.push(top);
        temporaries(&mut all, &mut dice, at as u32, at as u32 + 1, top, at);
    }
    for at in 0..activations {
        let below = heap.pop().unwrap_or(top);
        let moment = (activations + at) as u32;
        temporaries(&mut all, &mut dice, moment, moment, below, activations + at);
    }
    let instructions: Vec<String> = (0..steps).map(|at| format!("loop_fusion.{at}")).collect();
    let live_bytes = live(&all, steps as usize);
    let peak_index = (0..live_bytes.len()).max_by_key(|at| live_bytes[*at]).unwrap_or(0) as u32;
    let height_bytes = all.iter().map(|buffer| buffer.offset + buffer.bytes).max().unwrap_or(0);
    BufferLifetimes {
        program: "jit_train_step".into(),
        height_bytes,
        instructions,
        peak_index,
        next_peak_index: Some(steps / 4),
        live_bytes,
        buffers: all,
    }
}

fn temporaries(
    all: &mut Vec<BufferLifetime>,
    dice: &mut Dice,
    start: u32,
    end: u32,
    above: u64,
    number: usize,
) {
    let mut offset = above;
    for (name, kind) in [("gemm_fusion_dot", "temporaries"), ("custom-call", "workspace")] {
        let bytes = (16 + dice.below(3000)) * 1024;
        all.push(BufferLifetime {
            label: format!("{name}.{number}"),
            kind,
            offset,
            bytes,
            start,
            end,
            note: format!("bf16[{},128], model.py:{} (block)", bytes / 256, 40 + number % 7),
            stack: format!("model.py:{} (block) < train.py:88 (main)", 40 + number % 7),
        });
        offset += bytes;
    }
}

fn live(all: &[BufferLifetime], instructions: usize) -> Vec<u64> {
    let mut changes = vec![0_i64; instructions + 1];
    for buffer in all {
        changes[buffer.start as usize] += buffer.bytes as i64;
        changes[buffer.end as usize + 1] -= buffer.bytes as i64;
    }
    let mut sum = 0;
    let sums = changes.iter().take(instructions).map(|change| {
        sum += change;
        sum as u64
    });
    sums.collect()
}

pub(super) fn at_peak(lifetimes: &BufferLifetimes) -> impl Iterator<Item = &BufferLifetime> {
    let peak = lifetimes.peak_index;
    lifetimes.buffers.iter().filter(move |buffer| buffer.start <= peak && peak <= buffer.end)
}
