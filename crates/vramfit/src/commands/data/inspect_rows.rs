//! The first rows of each dataset as text.

use vramfit_data::inspect::{Entry, Preview, Value};

use super::numbers::{grouped, shown};

/// Columns of a line of numbers.
const WIDTH: usize = 78;

/// Writes the rows, a line each; numbers that do not fit into the line are counted.
pub(super) fn write_rows(text: &mut String, entries: &[Entry]) {
    for entry in entries {
        let Some(preview) = entry.dataset.as_ref().and_then(|facts| facts.rows.as_ref()) else {
            continue;
        };
        let values = match preview.row_values {
            1 => "1 number each".to_owned(),
            count => format!("{} numbers each", grouped(count)),
        };
        text.push_str(&format!("\nFirst rows of {}, {values}:\n", shown(&entry.path)));
        let width = preview.rows.len().saturating_sub(1).to_string().len();
        for (row, numbers) in preview.rows.iter().enumerate() {
            let head = format!("  [{row:>width$}] ");
            text.push_str(&format!("{head}{}\n", line(numbers, preview, WIDTH - head.len())));
        }
    }
}

/// Writes as many numbers as fit, with an ellipsis where there are more.
fn line(numbers: &[Value], preview: &Preview, columns: usize) -> String {
    let texts: Vec<String> = numbers.iter().map(number).collect();
    let all = texts.join(" ");
    if all.len() <= columns && preview.row_values == numbers.len() as u64 {
        return all;
    }
    let mut line = String::new();
    for text in texts {
        if line.len() + text.len() + 1 + "...".len() > columns {
            break;
        }
        line.push_str(&text);
        line.push(' ');
    }
    line + "..."
}

/// Writes a number with as many digits as a look needs.
fn number(number: &Value) -> String {
    match *number {
        Value::Integer(integer) => integer.to_string(),
        Value::Real(real) if !real.is_finite() => real.to_string(),
        Value::Real(real) => {
            let size = real.abs();
            match size {
                0.0 => "0.0".to_owned(),
                1e-3..1e6 => format!("{real:.4}"),
                _ => format!("{real:.3e}"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_what_fits_and_says_that_there_is_more() {
        let preview = |row_values| Preview { row_values, rows: Vec::new() };
        let numbers = [Value::Integer(7), Value::Real(0.25), Value::Real(f64::NAN)];
        assert_eq!(line(&numbers, &preview(3), 20), "7 0.2500 NaN");
        assert_eq!(line(&numbers, &preview(9), 20), "7 0.2500 NaN ...");
        assert_eq!(line(&numbers, &preview(3), 11), "7 ...");
        let sizes = [1e-9, -12.5, 3e7, 0.0, f64::NEG_INFINITY].map(Value::Real);
        assert_eq!(
            sizes.each_ref().map(number),
            ["1.000e-9", "-12.5000", "3.000e7", "0.0", "-inf"]
        );
    }
}
