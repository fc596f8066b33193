//! The order in which people number things: `demo_2` comes before `demo_10`.

use std::cmp::Ordering;

/// Compares two names: their numbers by value, everything else by its bytes.
pub(crate) fn compare(one: &str, other: &str) -> Ordering {
    let (mut one_rest, mut other_rest) = (one, other);
    loop {
        let (one_text, one_number, one_after) = split_number(one_rest);
        let (other_text, other_number, other_after) = split_number(other_rest);
        let by_value = |number: &str| number.trim_start_matches('0').len();
        let order = (one_text.cmp(other_text))
            .then_with(|| by_value(one_number).cmp(&by_value(other_number)))
            .then_with(|| {
                one_number.trim_start_matches('0').cmp(other_number.trim_start_matches('0'))
            });
        if order != Ordering::Equal {
            return order;
        }
        if one_number.is_empty() || other_number.is_empty() {
            // `7` and `007` are the same number, but two names.
            return one.cmp(other);
        }
        (one_rest, other_rest) = (one_after, other_after);
    }
}

/// Splits a name into the text before its first number, the number, and the rest.
fn split_number(name: &str) -> (&str, &str, &str) {
    let start = name.find(|c: char| c.is_ascii_digit()).unwrap_or(name.len());
    let (text, rest) = name.split_at(start);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, rest) = rest.split_at(end);
    (text, number, rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_compared_by_value() {
        let ordered = [
            "",
            "a",
            "a01",
            "a1",
            "a2",
            "a2b",
            "a10",
            "a10b2",
            "a10b10",
            "b",
            "b_99999999999999999999",
            "b_100000000000000000000",
        ];
        for (place, one) in ordered.iter().enumerate() {
            for (other_place, other) in ordered.iter().enumerate() {
                assert_eq!(compare(one, other), place.cmp(&other_place), "{one} and {other}");
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_a_total_order(mut names in prop::collection::vec("[a0-2]{0,5}", 3)) {
            names.sort_by(|one, other| compare(one, other));
            prop_assert_ne!(compare(&names[0], &names[2]), Ordering::Greater);
            for (one, other) in [(0, 1), (1, 2), (0, 2)] {
                let forward = compare(&names[one], &names[other]);
                prop_assert_eq!(forward.reverse(), compare(&names[other], &names[one]));
                prop_assert_eq!(forward == Ordering::Equal, names[one] == names[other]);
            }
        }
    }
}
