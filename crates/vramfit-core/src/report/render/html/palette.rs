//! The colors of kinds: the same kind has the same color in every chart.
//!
//! The hues can be distinguished with the common forms of color blindness, and each has a lighter
//! variant for the dark theme. Charts always name what they color, too.

/// A color in the light and in the dark theme.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Color {
    pub(super) light: &'static str,
    pub(super) dark: &'static str,
}

const fn color(light: &'static str, dark: &'static str) -> Color {
    Color { light, dark }
}

const FREE: Color = color("#e7ebef", "#262c33");
const UNKNOWN: Color = color("#9aa3ad", "#77818c");

/// Hues in the order in which they are assigned.
const HUES: [Color; 10] = [
    color("#2f6db3", "#6aa5e6"), // blue
    color("#dd7a1e", "#f0a256"), // orange
    color("#16907f", "#45c0ac"), // teal
    color("#a8478f", "#d583c0"), // purple
    color("#c2a012", "#e3c644"), // ochre
    color("#5f6f86", "#a3b3c9"), // slate
    color("#55a6d3", "#93d0f2"), // sky
    color("#6b8f2c", "#a6cb60"), // olive
    color("#6a57b4", "#a08fe4"), // violet
    color("#8b7966", "#b9a894"), // brown
];

/// Kinds with a fixed hue, by their prefix.
const FIXED_HUES: [(&str, usize); 17] = [
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
    ("output table", 7),
    ("output", 6),
    ("collective", 7),
    ("constant", 8),
    ("workspace", 9),
    ("library", 9),
    ("code", 9),
];

/// Returns the color of each kind. Those without a fixed hue take the unused ones, in their order.
pub(super) fn colors(kinds: &[&str]) -> Vec<Color> {
    let fixed = |kind: &str| FIXED_HUES.iter().find(|(start, _)| kind.starts_with(start));
    let used: Vec<usize> =
        kinds.iter().filter_map(|kind| fixed(kind)).map(|(_, hue)| *hue).collect();
    let mut unused = (0..HUES.len()).filter(|hue| !used.contains(hue));
    let color = |kind: &&str| match *kind {
        "free" => FREE,
        "" | "unknown" | "other" => UNKNOWN,
        kind => match fixed(kind) {
            Some((_, hue)) => HUES[*hue],
            None => unused.next().map_or(UNKNOWN, |hue| HUES[hue]),
        },
    };
    kinds.iter().map(color).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_keeps_its_color_and_unknown_kinds_take_unused_ones() {
        let found = colors(&["parameters", "free", "dark matter", "optimizer state"]);
        assert_eq!(found[0], HUES[0]);
        assert_eq!(found[1], FREE);
        assert_eq!(found[3], HUES[1]);
        assert!(!found[..2].contains(&found[2]) && found[2] != found[3]);
        assert_eq!(colors(&["optimizer state", "parameters"])[1], HUES[0]);
    }

    #[test]
    fn more_unknown_kinds_than_hues_are_gray() {
        let names: Vec<String> = (0..20).map(|n| format!("kind {n}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(colors(&names)[19], UNKNOWN);
    }
}
