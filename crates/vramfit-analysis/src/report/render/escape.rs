//! Names come from elsewhere, and are not trusted. For each place they are written to, one function
//! escapes them: HTML, and a script's data block; for a line of text see [`vramfit_base::text`].

use vramfit_base::text::plain;

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
