//! Lines of text: names from elsewhere, which are not trusted, line breaks, and names cut to a width.

/// Makes a text one line without control characters and without changes of direction.
pub fn plain(text: &str) -> String {
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

/// Counts the columns of a text, one a character.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// Units that follow a number.
const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "%"];

/// Returns a word without the punctuation around it.
fn trim_punctuation(word: &str) -> &str {
    word.trim_matches(|c| matches!(c, ',' | ';' | ':' | '.' | ')'))
}

fn ends_in_digit(word: &str) -> bool {
    word.ends_with(|c: char| c.is_ascii_digit())
}

/// Breaks a text into lines of at most `columns`, all but the first indented by `hanging`.
pub fn wrap(text: &str, columns: usize, hanging: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut words: Vec<String> = Vec::new();
    for word in plain(text).split(' ').filter(|word| !word.is_empty()) {
        match words.last_mut() {
            // A number and its unit stay together.
            Some(number) if UNITS.contains(&trim_punctuation(word)) && ends_in_digit(number) => {
                number.push(' ');
                number.push_str(word);
            }
            _ => words.push(word.to_owned()),
        }
    }
    for word in &words {
        let mut word = &word[..];
        if !line.trim().is_empty() && width(&line) + 1 + width(word) > columns {
            lines.push(std::mem::replace(&mut line, " ".repeat(hanging)));
        }
        if !line.trim().is_empty() {
            line.push(' ');
        }
        // A word longer than a line is broken; a path that is cut could not be copied.
        while width(&line) + width(word) > columns {
            let left = columns - width(&line);
            let end = word.char_indices().nth(left).map_or(word.len(), |(at, _)| at);
            // After a slash, if that leaves at least half a line.
            let slash = word[..end].rfind('/').map(|at| at + 1);
            let at = slash.filter(|at| *at > end / 2).unwrap_or(end);
            line.push_str(&word[..at]);
            word = &word[at..];
            lines.push(std::mem::replace(&mut line, " ".repeat(hanging)));
        }
        line.push_str(word);
    }
    if !line.trim().is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// Cuts a text in the middle, where names differ least.
pub fn cut(text: &str, columns: usize) -> String {
    let text = plain(text);
    let count = width(&text);
    if count <= columns {
        return text;
    }
    let kept = columns.saturating_sub(1);
    let head = kept.div_ceil(2);
    let tail = kept - head;
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{start}…{end}")
}

/// Cuts a text at its end.
pub fn cut_end(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    let kept: String = text.chars().take(columns.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Leaves the folder of the program out of a command: `/opt/venv/bin/python train.py` is `python train.py`.
pub fn without_folder(command: &str) -> &str {
    let program = command.split_whitespace().next().unwrap_or("");
    program.rfind('/').map_or(command, |slash| &command.trim_start()[slash + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_inert_in_a_line() {
        assert_eq!(plain("a\x1b[31mb\nc\u{202e}d\u{7}"), "a\u{fffd}[31mb c\u{fffd}d\u{fffd}");
    }

    #[test]
    fn commands_begin_with_the_name_of_the_program() {
        assert_eq!(without_folder("/opt/venv/bin/python3 -m vramfit"), "python3 -m vramfit");
        assert_eq!(without_folder(" /usr/bin/Xorg"), "Xorg");
        assert_eq!(without_folder("python data/train.py"), "python data/train.py");
        assert_eq!(without_folder(""), "");
        assert_eq!(cut_end("train.py --steps 5", 10), "train.py…");
        assert_eq!(cut_end("train.py", 8), "train.py");
    }

    #[test]
    fn lines_break_at_words_and_hang() {
        assert_eq!(wrap("aa bb cc", 5, 1), ["aa bb", " cc"]);
        assert_eq!(wrap("a bbbbbbbb", 5, 1), ["a", " bbbb", " bbbb"]);
        assert_eq!(wrap("/home/a/train.py", 9, 1), ["/home/a/", " train.py"]);
        assert_eq!(wrap("", 5, 1), [""]);
        assert_eq!(wrap("of 1.5 GiB, 20 %", 9, 0), ["of", "1.5 GiB,", "20 %"]);
    }

    #[test]
    fn names_are_cut_in_the_middle() {
        assert_eq!(cut("jit_train_step", 14), "jit_train_step");
        assert_eq!(cut("jit_train_step", 9), "jit_…step");
    }
}
