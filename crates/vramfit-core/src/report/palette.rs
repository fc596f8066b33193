//! The colours of kinds: the same kind has the same colour in every picture.
//!
//! The hues stay apart for the common forms of colour blindness, and each has a lighter twin for
//! dark paper. Pictures always name what they colour, too.

/// A colour on light and on dark paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Colour {
    pub(super) light: &'static str,
    pub(super) dark: &'static str,
}

const fn colour(light: &'static str, dark: &'static str) -> Colour {
    Colour { light, dark }
}

const FREE: Colour = colour("#e7ebef", "#262c33");
const UNKNOWN: Colour = colour("#9aa3ad", "#77818c");

/// Hues in the order in which they are given out.
const HUES: [Colour; 10] = [
    colour("#2f6db3", "#6aa5e6"), // blue
    colour("#dd7a1e", "#f0a256"), // orange
    colour("#16907f", "#45c0ac"), // teal
    colour("#a8478f", "#d583c0"), // purple
    colour("#c2a012", "#e3c644"), // ochre
    colour("#c64a41", "#ee847b"), // red
    colour("#55a6d3", "#93d0f2"), // sky
    colour("#6b8f2c", "#a6cb60"), // olive
    colour("#6a57b4", "#a08fe4"), // violet
    colour("#8b7966", "#b9a894"), // brown
];

/// Kinds with a hue of their own, by a word that they begin with.
const KNOWN: [(&str, usize); 16] = [
    ("param", 0),
    ("optim", 1),
    ("activ", 2),
    ("residual", 2),
    ("gradient", 3),
    ("input", 4),
    ("upload", 4),
    ("argument", 4),
    ("batch", 4),
    ("temp", 5),
    ("output", 6),
    ("collective", 7),
    ("constant", 8),
    ("workspace", 9),
    ("scratch", 9),
    ("code", 9),
];

/// Returns the colour of each kind, in the order given. Kinds that are not known take the hues
/// that are left, in their order.
pub(super) fn colours(kinds: &[&str]) -> Vec<Colour> {
    let own = |kind: &str| KNOWN.iter().find(|(start, _)| kind.starts_with(start));
    let taken: Vec<usize> = kinds
        .iter()
        .filter_map(|kind| own(kind))
        .map(|(_, hue)| *hue)
        .collect();
    let mut left = (0..HUES.len()).filter(|hue| !taken.contains(hue));
    let colour = |kind: &&str| match *kind {
        "free" => FREE,
        "" | "unknown" | "other" => UNKNOWN,
        kind => match own(kind) {
            Some((_, hue)) => HUES[*hue],
            None => left.next().map_or(UNKNOWN, |hue| HUES[hue]),
        },
    };
    kinds.iter().map(colour).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_keeps_its_colour_and_strangers_take_what_is_left() {
        let found = colours(&["parameters", "free", "dark matter", "optimizer state"]);
        assert_eq!(found[0], HUES[0]);
        assert_eq!(found[1], FREE);
        assert_eq!(found[3], HUES[1]);
        assert!(!found[..2].contains(&found[2]) && found[2] != found[3]);
        assert_eq!(colours(&["optimizer state", "parameters"])[1], HUES[0]);
    }

    #[test]
    fn more_strangers_than_hues_are_grey_not_a_failure() {
        let names: Vec<String> = (0..20).map(|n| format!("kind {n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(colours(&names)[19], UNKNOWN);
    }
}
