//! The colors of kinds: a kind has the same color in every chart of every report.
//!
//! The hues can be distinguished with the common forms of color blindness, and each has a lighter
//! variant for the dark theme. Charts always name what they color, too.

/// A color in the light and in the dark theme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Color {
    pub(super) light: &'static str,
    pub(super) dark: &'static str,
}

const fn new(light: &'static str, dark: &'static str) -> Color {
    Color { light, dark }
}

const BLUE: Color = new("#2f6db3", "#6aa5e6");
const ORANGE: Color = new("#dd7a1e", "#f0a256");
const TEAL: Color = new("#16907f", "#45c0ac");
const PURPLE: Color = new("#a8478f", "#d583c0");
const OCHRE: Color = new("#c2a012", "#e3c644");
const SLATE: Color = new("#5f6f86", "#a3b3c9");
const SKY: Color = new("#55a6d3", "#93d0f2");
const OLIVE: Color = new("#6b8f2c", "#a6cb60");
const VIOLET: Color = new("#6a57b4", "#a08fe4");
const BROWN: Color = new("#8b7966", "#b9a894");
const RED: Color = new("#c0504d", "#ef8f8a");
const PEACH: Color = new("#d9a07c", "#f1c3a4");
const MAUVE: Color = new("#b79ad6", "#cdb8ea");
const FREE: Color = new("#e7ebef", "#262c33");
const GRAY: Color = new("#9aa3ad", "#77818c");
const DARK_GRAY: Color = new("#6f767e", "#949ca5");

/// The color of each kind: owners of memory, and what the pool is requested for.
const COLORS: [(&str, Color); 23] = [
    ("free", FREE),
    ("parameters", BLUE),
    ("optimizer_state", ORANGE),
    ("activations", TEAL),
    ("gradients", PURPLE),
    ("batch", OCHRE),
    ("upload", OCHRE),
    ("temporaries", SLATE),
    ("outputs", SKY),
    ("output", SKY),
    ("output table", OLIVE),
    ("constants", VIOLET),
    ("library_scratch", BROWN),
    ("library scratch", BROWN),
    ("other_arrays", RED),
    ("arrays", PEACH),
    ("other_state", MAUVE),
    ("copy", MAUVE),
    ("padding", DARK_GRAY),
    ("rounding", GRAY),
    ("several owners", GRAY),
    ("unknown", GRAY),
    ("", GRAY),
];

/// Returns the color of a kind; gray for one that is not known.
pub(super) fn color(kind: &str) -> Color {
    let known = COLORS.iter().find(|(name, _)| *name == kind);
    known.map_or(GRAY, |(_, color)| *color)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::EntryKind;
    use crate::program::memory::Owner;
    use crate::trace::Purpose;

    #[test]
    fn every_owner_and_purpose_has_a_color_of_its_own() {
        let owners = Owner::ALL.iter().map(|owner| EntryKind::Program(*owner));
        let others =
            [EntryKind::Arrays, EntryKind::OtherArrays, EntryKind::Scratch, EntryKind::Rounding];
        let kinds: Vec<&str> = owners.chain(others).map(EntryKind::id).collect();
        let purposes: Vec<&str> = Purpose::ALL.iter().map(|purpose| purpose.label()).collect();
        for names in [kinds, purposes] {
            for (at, name) in names.iter().enumerate() {
                assert!(COLORS.iter().any(|(known, _)| known == name), "{name} has no color");
                for other in &names[..at] {
                    assert_ne!(color(name), color(other), "{name} and {other}");
                }
            }
        }
    }

    #[test]
    fn owners_have_the_same_colors_in_every_report() {
        let shown = |kind: &str| color(kind).light;
        assert_eq!(shown("parameters"), "#2f6db3");
        assert_eq!(shown("optimizer_state"), "#dd7a1e");
        assert_eq!(shown("activations"), "#16907f");
        assert_eq!(shown("gradients"), "#a8478f");
        assert_eq!(shown("temporaries"), "#5f6f86");
        assert_eq!(shown("other_arrays"), "#c0504d");
        // What a library calls its own is gray.
        assert_eq!(color("dark matter"), GRAY);
    }
}
