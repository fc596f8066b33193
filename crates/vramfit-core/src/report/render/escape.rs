//! Names come from elsewhere, and are not trusted. For each place they are written to, one function
//! escapes them: a line of text, HTML, and a script's data block.

/// Makes a text one line without control characters and without changes of direction.
pub(super) fn plain(text: &str) -> String {
    let sanitize = |c: char| match c {
        '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
        c if c.is_control() => '\u{fffd}',
        // Marks that reorder what is shown, so that one name could pass for another.
        '\u{061c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        // Code points that are no characters.
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        c => c,
    };
    text.chars().map(sanitize).collect()
}

/// Escapes a text for HTML, as content and as a quoted attribute.
pub(super) fn markup(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// Escapes JSON inside a `script` element: nothing in it can end the element or begin a comment, and
/// it still parses as the same value. In JSON these characters are only ever in strings.
pub(super) fn data_block(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><!--<b a='1' b=\"2\">&amp;\u{202e}\x1b[31m\u{2028}";

    #[test]
    fn hostile_names_are_inert_in_a_line() {
        assert_eq!(plain("a\x1b[31mb\nc\u{202e}d\u{7}"), "a\u{fffd}[31mb c\u{fffd}d\u{fffd}");
    }

    #[test]
    fn hostile_names_are_inert_in_markup() {
        let safe = markup(HOSTILE);
        assert!(!safe.contains(['<', '>', '"', '\'', '\x1b', '\u{202e}']), "{safe}");
        assert!(safe.starts_with("&lt;/script&gt;&lt;!--"));
        assert!(safe.contains("&amp;amp;"));
    }

    #[test]
    fn a_data_block_cannot_be_left_and_parses_to_the_same() {
        let json = serde_json::to_string(HOSTILE).expect("a text");
        let safe = data_block(&json);
        assert!(!safe.contains(['<', '>', '&']), "{safe}");
        let back: String = serde_json::from_str(&safe).expect("still JSON");
        assert_eq!(back, HOSTILE);
    }
}
