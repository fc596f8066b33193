//! Whose `jit` a function was compiled by, since each takes donated arguments in its own way.

use crate::program::ProgramMemory;

/// What stands in the stacks of a program between the line that calls it and the function.
const WRAPPERS: [(&str, JitForm); 2] = [
    ("/equinox/_jit.py:", JitForm::Equinox),
    ("/flax/nnx/transforms/compilation.py:", JitForm::Nnx),
];

/// Whose `jit` a function was compiled by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JitForm {
    /// `jax.jit`.
    #[default]
    Jax,
    /// `equinox.filter_jit`.
    Equinox,
    /// `flax.nnx.jit`.
    Nnx,
}

impl JitForm {
    /// Returns the form of a program that the line `site` calls.
    pub fn of(memory: &ProgramMemory, site: &str) -> Self {
        let frames = memory.buffers.iter().filter_map(|buffer| buffer.frame);
        let mut forms = frames.filter_map(|frame| {
            // The innermost first: what follows the call is what comes before it.
            let stack: Vec<_> = memory.stack(Some(frame)).collect();
            let call = stack.iter().rposition(|frame| frame.site == site)?;
            let mut inward = stack[..call].iter().rev().take_while(|frame| frame.library);
            inward.find_map(|frame| {
                let mut wrappers = WRAPPERS.iter();
                wrappers.find(|(file, _)| frame.site.contains(file)).map(|(_, form)| *form)
            })
        });
        forms.next().unwrap_or_default()
    }

    /// Returns the call that donates: with the arguments `names`, or `...` where they are not told.
    pub fn donating_call(self, names: &[String]) -> String {
        let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
        let option = match &quoted[..] {
            [] => "donate_argnames=...".to_owned(),
            names => format!("donate_argnames=[{}]", names.join(", ")),
        };
        match self {
            JitForm::Jax if names.is_empty() => "jax.jit(..., donate_argnums=...)".to_owned(),
            JitForm::Jax => format!("jax.jit(..., {option})"),
            JitForm::Nnx => format!("nnx.jit(..., {option})"),
            JitForm::Equinox => "eqx.filter_jit(..., donate=\"all\")".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::memory::{Buffer, Frame};

    /// A program whose only buffer has this stack, the outermost first.
    fn program(stack: &[&str]) -> ProgramMemory {
        let frames = stack.iter().enumerate().map(|(at, site)| Frame {
            site: (*site).to_owned(),
            library: site.contains("site-packages"),
            parent: at.checked_sub(1).map(|parent| parent as u32),
        });
        let frame = Some(stack.len() as u32 - 1);
        ProgramMemory {
            frames: frames.collect(),
            buffers: vec![Buffer { frame, ..Buffer::default() }],
            ..ProgramMemory::default()
        }
    }

    #[test]
    fn the_form_is_that_of_the_call_and_of_none_inside_of_the_function() {
        const CALL: &str = "a.py:9 (<module>)";
        const EQUINOX: &str = "/x/site-packages/equinox/_jit.py:209 (_JitWrapper.__call__)";
        const NNX: &str =
            "/x/site-packages/flax/nnx/transforms/compilation.py:1023 (JitWrapped.__call__)";
        for (stack, form) in [
            (&["a.py:9 (<module>)", "a.py:3 (step)"][..], JitForm::Jax),
            (&[CALL, EQUINOX, "a.py:3 (step)"], JitForm::Equinox),
            (&[CALL, NNX, "a.py:3 (step)"], JitForm::Nnx),
            // A function of another `jit` inside of one of `jax.jit`.
            (&[CALL, "a.py:3 (step)", EQUINOX, "a.py:5 (inner)"], JitForm::Jax),
            // The line is called under another `jit`, which is not that of the program.
            (&["b.py:1 (main)", EQUINOX, CALL, "a.py:3 (step)"], JitForm::Jax),
            (&["b.py:1 (main)", EQUINOX, "b.py:3 (step)"], JitForm::Jax),
        ] {
            assert_eq!(JitForm::of(&program(stack), CALL), form, "{stack:?}");
        }
    }

    #[test]
    fn each_form_donates_in_its_own_way() {
        let names = ["p".to_owned(), "o".to_owned()];
        for (form, expected) in [
            (JitForm::Jax, "jax.jit(..., donate_argnames=[\"p\", \"o\"])"),
            (JitForm::Nnx, "nnx.jit(..., donate_argnames=[\"p\", \"o\"])"),
            (JitForm::Equinox, "eqx.filter_jit(..., donate=\"all\")"),
        ] {
            assert_eq!(form.donating_call(&names), expected);
        }
        assert_eq!(JitForm::Jax.donating_call(&[]), "jax.jit(..., donate_argnums=...)");
    }
}
