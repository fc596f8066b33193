use super::*;

/// Searches; the peak of a number is `None` where the program rejects it.
fn search(
    numbers: &str,
    limit_bytes: u64,
    peak: impl Fn(u64) -> Option<u64>,
) -> (LargestNumber, LargestSearch) {
    let mut search = LargestSearch::new(numbers.parse().expect("numbers"));
    while let Some(number) = search.next_number() {
        let known = search.measured.contains_key(&number) || search.rejected.contains_key(&number);
        assert!(!known, "{number} is tried again: {search:?}");
        match peak(number) {
            Some(peak_bytes) => search.add_measured(
                number,
                Measured { peak_bytes, limit_bytes, fits: peak_bytes <= limit_bytes },
            ),
            None => search.add_rejected(number, "no".into()),
        }
    }
    (search.found(), search)
}

#[test]
fn a_line_takes_four_trials() {
    for slope in [1, 3, 17, 250, 4096] {
        for limit in [10_000, 123_457, 999_999] {
            let numbers = format!("1..{}", 1u64 << 40);
            let (found, _) = search(&numbers, limit, |number| Some(5000 + slope * number));
            let largest = (limit - 5000) / slope;
            assert_eq!(found.fits.map(|(number, _)| number), Some(largest));
            assert!(found.trials <= 4, "{slope} {limit}: {}", found.trials);
            assert_eq!((found.is_monotonic, found.is_proven), (Some(true), true));
        }
    }
}

#[test]
fn the_answer_is_proven_also_where_peaks_have_steps() {
    let peak = |number: u64| Some((number * 1000).next_multiple_of(65536) + number);
    let (found, _) = search("1..4096", 1 << 20, peak);
    let (fits, too_large) = (found.fits.expect("one fits"), found.too_large.expect("one does not"));
    assert_eq!(fits.0 + 1, too_large.0);
    assert!(fits.1 <= 1 << 20 && too_large.1 > 1 << 20);
}

#[test]
fn the_ends_of_the_range_are_answers() {
    let (all, _) = search("1..64", 1 << 30, Some);
    assert_eq!((all.fits, all.is_proven), (Some((64, 64)), true));
    let (none, _) = search("1..64", 10, |number| Some(100 + number));
    assert_eq!((none.fits, none.too_large), (None, Some((1, 101))));
    // Nothing was seen to grow.
    assert_eq!((none.trials, none.is_monotonic), (1, None));
}

#[test]
fn a_peak_that_falls_is_noticed() {
    let peak = |number: u64| Some(if number.is_multiple_of(4) { 10 * number } else { 30 * number });
    let (found, _) = search("1..4096", 10_000, peak);
    assert_eq!(found.is_monotonic, Some(false));
}

#[test]
fn multiples_are_found_of_whatever_the_program_divides_by() {
    for divisor in [2, 3, 4, 5, 6, 7, 8, 12, 16, 20, 24, 32, 64, 96, 128, 256] {
        for first in [1u64, 2, 8, 13, 96] {
            for limit in [700, 1000, 4321, 99_999] {
                let peak = |number: u64| (number.is_multiple_of(divisor)).then_some(200 + number);
                let (found, search) = search(&format!("{first}..1000000"), limit, peak);
                let largest = (limit - 200) / divisor * divisor;
                let smallest = first.next_multiple_of(divisor);
                let context = format!("{divisor} from {first} to {limit}: {search:?}");
                if largest >= smallest {
                    let expected = Some((largest, 200 + largest));
                    assert_eq!(found.fits, expected, "{context}");
                    let above = largest + divisor;
                    assert_eq!(found.too_large, Some((above, 200 + above)), "{context}");
                    assert!(found.is_proven, "{context}");
                } else {
                    assert_eq!(found.fits, None, "{context}");
                }
                assert!(found.trials <= 26, "{context}");
            }
        }
    }
}

#[test]
fn powers_are_found_where_the_program_accepts_no_other_numbers() {
    let linear = |number: u64| 10 + number;
    // The line through the first two numbers leads far too far.
    let bent = |number: u64| 10 + number + number * number / 16;
    let peaks: [(&dyn Fn(u64) -> u64, u64); 8] = [
        (&linear, 40),
        (&linear, 150),
        (&linear, 1000),
        (&linear, 5000),
        (&bent, 40),
        (&bent, 1000),
        (&bent, 100_000),
        (&bent, 2_000_000),
    ];
    for (peak_of, limit) in peaks {
        let peak = |number: u64| number.is_power_of_two().then(|| peak_of(number));
        let (found, search) = search("1..4096", limit, peak);
        let powers = (0..13).map(|power| 1 << power);
        let largest = powers.filter(|number| peak_of(*number) <= limit).max();
        let largest = largest.expect("one fits");
        let context = format!("{limit}: {search:?}");
        assert_eq!(found.fits, Some((largest, peak_of(largest))), "{context}");
        // No rule was found by which the others are not accepted either.
        assert_eq!(found.is_proven, largest == 4096, "{context}");
    }
}

#[test]
fn a_largest_number_that_the_program_has_is_found() {
    let peak = |number: u64| (number <= 512 && number.is_multiple_of(8)).then_some(number);
    let (found, search) = search("8..4096", 1 << 20, peak);
    assert_eq!(found.fits, Some((512, 512)), "{search:?}");
    assert_eq!((found.too_large, found.is_proven), (None, false));
    assert!(found.rejected.contains_key(&520));
}

#[test]
fn a_program_that_accepts_nothing_is_left_after_some_trials() {
    let (found, _) = search("1..1000000", 10, |_| None);
    assert_eq!((found.fits, found.too_large), (None, None));
    assert!(found.trials <= MAX_REJECTED as u32);
    assert!(!found.is_proven);
}

#[test]
fn only_numbers_of_the_progression_are_tried() {
    let (found, search) = search("8..4096:8", 1000, |number| Some(100 + number));
    assert!(search.measured.keys().all(|number| number.is_multiple_of(8)));
    assert_eq!((found.fits, found.too_large), (Some((896, 996)), Some((904, 1004))));
    assert!(found.is_proven);
    let (found, _) = self::search("8..4096:x2", 1000, |number| Some(100 + number));
    assert_eq!((found.fits, found.too_large), (Some((512, 612)), Some((1024, 1124))));
    assert!(found.is_proven);
}
