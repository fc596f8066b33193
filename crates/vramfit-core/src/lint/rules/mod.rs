//! The rules, by theme. The order here is the order of the page.

mod conflicts;
mod flags;
mod moment;
mod names;
mod neighbours;
mod outside;
mod room;
mod switches;
mod values;

use super::Rule;

/// Rules that belong together on the page.
pub(super) struct Theme {
    pub(super) title: &'static str,
    pub(super) rules: &'static [Rule],
}

pub(super) const THEMES: &[Theme] = &[
    Theme {
        title: "Names",
        rules: names::RULES,
    },
    Theme {
        title: "The pool: fraction and allocator",
        rules: values::RULES,
    },
    Theme {
        title: "Switches and numbers",
        rules: switches::RULES,
    },
    Theme {
        title: "Settings that contradict each other",
        rules: conflicts::RULES,
    },
    Theme {
        title: "XLA_FLAGS",
        rules: flags::RULES,
    },
    Theme {
        title: "Room on the GPU",
        rules: room::RULES,
    },
    Theme {
        title: "What else is there",
        rules: neighbours::RULES,
    },
    Theme {
        title: "Settings that do not arrive",
        rules: outside::RULES,
    },
    Theme {
        title: "The moment",
        rules: moment::RULES,
    },
];
