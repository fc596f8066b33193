//! What a program prints of its progress: steps, other phases, its end.

use super::{Match, Pattern, contains};
use crate::explain::message::Message;
use crate::explain::number::plain_integer;

pub(super) const PATTERNS: &[Pattern] = &[
    Pattern::fixed("savingcheckpoint", Message::OtherPhase),
    Pattern::fixed("evaluating", Message::OtherPhase),
    Pattern::fixed("validating", Message::OtherPhase),
    Pattern::fixed("runningevaluation", Message::OtherPhase),
    Pattern::fixed("restoringcheckpoint", Message::OtherPhase),
    Pattern::new("trainingfinished", ended),
    Pattern::new("trainingcomplete", ended),
    Pattern::new("trainingdone", ended),
    Pattern::new("finishedtraining", ended),
    Pattern::new("finalloss", ended),
    Pattern::new("final_loss", ended),
    Pattern::new("finalaccuracy", ended),
    Pattern::new("final_accuracy", ended),
    Pattern::new("finaltest", ended),
    Pattern::new("finalval", ended),
    Pattern::new("finaleval", ended),
    Pattern::new("finalmetric", ended),
    Pattern::new("finalresult", ended),
    Pattern::new("completedstep:", step),
    Pattern::new("step", step),
    Pattern::new("iteration", step),
    Pattern::new("epoch", step),
    Pattern::new("it/s", progress_bar),
    Pattern::new("s/it", progress_bar),
];

/// `Training finished in 3 h`, `finished. Final loss: 0.1`, of a program that has come to its end.
fn ended(at: &Match<'_>) -> Option<Message> {
    let line = at.line().to_ascii_lowercase();
    let is_failure = ["fail", "error", "exit code", "exit status", "abort"];
    let ends_well = !is_failure.iter().any(|word| line.contains(word));
    (ends_well && at.block.begins_word(at.from)).then_some(Message::Ended)
}

/// Returns `true` if a word for a step is part of a setting: of an option or a name such as `max_step`, of a command, or
/// behind words that name another step than one that was just done.
fn is_setting(at: &Match<'_>) -> bool {
    const OWN_NAMES: [&str; 5] = ["global_", "train_", "training_", "current_", "update_"];
    const OTHERS: [&str; 11] = [
        "max",
        "total",
        "num",
        "numberof",
        "every",
        "from",
        "until",
        "upto",
        "warmup",
        "resumingat",
        "restoredat",
    ];
    const MAX_DISTANCE: usize = 200;
    // What stands in the lines before is no part of it.
    let in_line = at.from - at.block.line_start(at.from);
    let before = at.before(in_line.min(MAX_DISTANCE));
    let ends_with = |words: &[&str]| words.iter().any(|word| before.ends_with(word.as_bytes()));
    match at.block.byte_before(at.from) {
        Some(b'-') => return true,
        Some(b'_') => return !ends_with(&OWN_NAMES),
        _ => {}
    }
    // `Namespace(lr=0.1, step=100)`; `python train.py step=100`, but not the source file of a logger, `train.py:55]`.
    let of_command = memchr::memmem::rfind(before, b".py")
        .map(|at| before.get(at + 3))
        .is_some_and(|next| next.is_none_or(|it| it.is_ascii_alphabetic() || *it == b'-'));
    ends_with(&OTHERS) || contains(before, "namespace(") || of_command
}

/// `step: 29`, `Epoch 3/10`, `iteration=500`
fn step(at: &Match<'_>) -> Option<Message> {
    let text = at.record();
    let signs =
        text.iter().take(3).take_while(|byte| matches!(byte, b':' | b'=' | b'#' | b'[' | b'|'));
    let (number, rest) = plain_integer(&text[signs.count()..])?;
    // `step_size1e-3` and `step2_model` are names.
    let is_name = rest.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_');
    let end = rest.as_ptr().addr() - at.block.text().as_ptr().addr();
    let is_name = is_name && at.block.line_start(end) != end;
    let is_name = is_name || rest.starts_with(b".py");
    ((!is_name || rest.starts_with(b"loss")) && !is_setting(at))
        .then_some(Message::Step { number, is_last: false })
}

/// `481/938 [10:20<11:47, 1.55s/it`, a progress bar of tqdm.
fn progress_bar(at: &Match<'_>) -> Option<Message> {
    let before = at.before(48);
    let bracket = memchr::memrchr(b'[', before)?;
    let count = &before[..bracket];
    let is_count = |byte: &&u8| byte.is_ascii_digit() || **byte == b'/';
    let length = count.iter().rev().take_while(is_count).count();
    let (number, rest) = plain_integer(&count[count.len() - length..])?;
    let all = rest.strip_prefix(b"/").and_then(plain_integer);
    Some(Message::Step { number, is_last: all.is_some_and(|(all, _)| all == number) })
}
