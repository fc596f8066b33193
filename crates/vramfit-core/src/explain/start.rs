//! How the program was started, as far as its log shows.

use super::log::Log;
use super::message::Message;

/// Shown where the log has neither a command nor a script.
const PLACEHOLDER: &str = "python train.py";

impl Log {
    /// Returns the command that starts the program: as the log shows it, else the script of its traceback, else a
    /// placeholder.
    pub(super) fn command(&self) -> String {
        let script = self.find(|message| match message {
            Message::Script { path } => Some(path.as_str().to_owned()),
            _ => None,
        });
        let commands = self.messages().filter_map(|(_, message)| match message {
            Message::Command { line } => Some(line),
            _ => None,
        });
        let Some((_, script)) = script else {
            return commands.last().map_or(PLACEHOLDER, String::as_str).to_owned();
        };
        // The arguments are only in the command.
        let name = script.rsplit('/').next().unwrap_or(&script);
        let starts_it = |line: &&String| {
            let mut words = line.split(' ');
            words.any(|word| word.rsplit('/').next() == Some(name))
        };
        match commands.filter(starts_it).last() {
            Some(line) => line.clone(),
            None => match shlex::try_quote(&script) {
                Ok(quoted) => format!("python {quoted}"),
                Err(_) => PLACEHOLDER.to_owned(),
            },
        }
    }
}

/// An option of a command that says how large a batch is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BatchOption {
    /// The command with `{batch}` in place of the size.
    pub(crate) command: String,
    pub(crate) size: u64,
}

/// Returns the option of a command that names the size of a batch: `--batch_size 64`, `train.batch=64`.
pub(crate) fn batch_option(command: &str) -> Option<BatchOption> {
    let words: Vec<&str> = command.split(' ').collect();
    let is_batch = |name: &str| name.to_ascii_lowercase().contains("batch");
    words.iter().enumerate().find_map(|(at, word)| {
        let (place, size, replaced) = match word.split_once('=') {
            Some((name, value)) if is_batch(name) => (at, value, format!("{name}={{batch}}")),
            None if word.starts_with('-') && is_batch(word) => {
                (at + 1, *words.get(at + 1)?, "{batch}".to_owned())
            }
            _ => return None,
        };
        let size = size.parse().ok().filter(|size| *size > 0)?;
        let mut words: Vec<&str> = words.clone();
        words[place] = &replaced;
        Some(BatchOption { command: words.join(" "), size })
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::LogScanner;

    use super::*;

    fn command_of(text: &str) -> String {
        let mut scanner = LogScanner::new("");
        scanner.push(text.as_bytes());
        scanner.finish().command()
    }

    #[test]
    fn the_command_is_that_of_the_log() {
        let traceback = "Traceback (most recent call last):\n  File \"/home/user/my model/fit.py\", line 7, in <module>\n    main()\n";
        for (text, command) in [
            ("", PLACEHOLDER),
            (traceback, "python '/home/user/my model/fit.py'"),
            ("$ python fit.py --batch_size=64 2>&1 | tee log\n", "python fit.py --batch_size=64"),
            ("+ CUDA_VISIBLE_DEVICES=1 python3 -m pkg.fit -n 5\n", "python3 -m pkg.fit -n 5"),
            ("+ docker run --rm image python run.py --seeds=3\n", "python run.py --seeds=3"),
            ("(env) user@host:~/x$ /usr/bin/python3.11 -u fit.py\n", "python3.11 -u fit.py"),
            (
                "XLA_CLIENT_MEM_FRACTION=0.9 uv run scripts/fit.py pi0 --batch-size=8\n",
                "uv run scripts/fit.py pi0 --batch-size=8",
            ),
            // Sentences, installations, and libraries in tracebacks.
            ("I ran python fit.py and it died\n", PLACEHOLDER),
            ("$ python -m pip install jax\n$ python setup.py install\n", PLACEHOLDER),
            (
                "  File \"/usr/lib/python3.10/site-packages/absl/app.py\", line 308, in main\n",
                PLACEHOLDER,
            ),
            ("  File \"<stdin>\", line 1, in <module>\n", PLACEHOLDER),
        ] {
            assert_eq!(command_of(text), command, "{text}");
        }
        let both = format!(
            "$ python other.py\n$ python fit.py -n 2\n{}",
            traceback.replace("my model/", "")
        );
        assert_eq!(command_of(&both), "python fit.py -n 2");
    }

    #[test]
    fn the_size_of_a_batch_can_be_varied_where_the_command_has_it() {
        for (command, varied) in [
            (
                "python fit.py --batch_size 64 -n 5",
                Some(("python fit.py --batch_size {batch} -n 5", 64)),
            ),
            ("python fit.py --train-batch=8", Some(("python fit.py --train-batch={batch}", 8))),
            (
                "python fit.py data.batch_size=512",
                Some(("python fit.py data.batch_size={batch}", 512)),
            ),
            ("python fit.py --batches many", None),
            ("python batch.py 3", None),
        ] {
            let found = batch_option(command);
            let found = found.as_ref().map(|found| (found.command.as_str(), found.size));
            assert_eq!(found, varied, "{command}");
        }
    }
}
