//! Values as each format wants them quoted.

/// Quotes for a shell: nothing inside single quotes means anything to it.
pub(super) fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes a command line for a shell.
pub(super) fn command(words: &[String]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| shell(word)).collect();
    quoted.join(" ")
}

/// Quotes for a Dockerfile's `ENV`, where `$NAME` would be replaced and a backslash protects.
pub(super) fn dockerfile(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        if matches!(c, '"' | '\\' | '$') {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted + "\""
}

/// Quotes for YAML: a text in double quotes, where all that YAML does not print is written by number.
pub(super) fn yaml(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            ' '..='~' => quoted.push(c),
            // What YAML 1.1 calls printable, without the marks that break lines or begin a file.
            '\u{a1}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' => {
                quoted.push(c);
            }
            c if u32::from(c) > 0xffff => quoted.push_str(&format!("\\U{:08x}", u32::from(c))),
            c => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    quoted + "\""
}

/// Quotes for Docker Compose and Kubernetes, which replace `$NAME` and `$(NAME)` in what YAML gives them.
pub(super) fn yaml_template(text: &str) -> String {
    yaml(&text.replace('$', "$$"))
}

/// Quotes a command line for them, as a list.
pub(super) fn yaml_template_list(words: &[String]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| yaml_template(word)).collect();
    quoted.join(", ")
}

/// Quotes a word of a systemd unit, where `%n` would be replaced.
pub(super) fn systemd(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '%' => quoted.push_str("%%"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                quoted.push_str(&format!("\\x{:02x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// Quotes a word of a unit's command line, where `$NAME` would be replaced, too.
pub(super) fn systemd_command(words: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=,+@".contains(c);
    let quoted: Vec<_> = words
        .iter()
        .map(|word| match !word.is_empty() && word.chars().all(plain) {
            true => word.clone(),
            false => systemd(&word.replace('$', "$$")),
        })
        .collect();
    quoted.join(" ")
}
