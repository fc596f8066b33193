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
pub struct BatchOption {
    /// The command with `{batch}` in place of the size.
    pub command: String,
    /// Samples of a batch.
    pub size: u64,
}

impl BatchOption {
    /// Returns the command that searches for the largest batch that fits, with these options for the GPU.
    pub fn search_command(&self, gpu_options: &str) -> String {
        format!("vramfit plan {gpu_options} --vary batch=1..{} -- {}", self.size, self.command)
    }
}

/// Returns the option of a command that names the size of a batch: `--batch_size 64`, `train.batch=64`, `--bs 64`.
pub fn batch_option(command: &str) -> Option<BatchOption> {
    let words: Vec<&str> = command.split(' ').collect();
    let found = batch_values(&words).into_iter();
    let (place, name, size) = found
        .filter_map(|(place, name, value)| Some((place, name, value.parse::<u64>().ok()?)))
        .filter(|(.., size)| *size > 0)
        // Of a batch that is computed in parts, one part is in memory.
        .min_by_key(|(place, name, _)| {
            let name = name.unwrap_or_else(|| words[place - 1]);
            let is_part = |word: &String| matches!(word.as_str(), "micro" | "microbatch");
            !split_option_name(name).iter().any(is_part)
        })?;
    let replaced = match name {
        Some(name) => format!("{name}={{batch}}"),
        None => "{batch}".to_owned(),
    };
    let mut words = words;
    words[place] = &replaced;
    Some(BatchOption { command: words.join(" "), size })
}

/// Returns `true` if a command has an option for its batch, also one whose value is not a number, such as `$BATCH`.
pub(super) fn names_batch(command: &str) -> bool {
    let words: Vec<&str> = command.split(' ').collect();
    !batch_values(&words).is_empty()
}

/// Returns the values that say how large a batch is: which word has each, the name in front of it if it is in the same
/// word, and the value.
fn batch_values<'a>(words: &[&'a str]) -> Vec<(usize, Option<&'a str>, &'a str)> {
    let values = words.iter().enumerate().filter_map(|(at, word)| match word.split_once('=') {
        Some((name, value)) => is_batch(name).then_some((at, Some(name), value)),
        None if word.starts_with('-') && is_batch(word) => {
            words.get(at + 1).map(|value| (at + 1, None, *value))
        }
        None => None,
    });
    values.collect()
}

/// Returns `true` if an option says how large the batch of the training is.
fn is_batch(name: &str) -> bool {
    const SIZES: [&str; 6] = ["batch", "batchsize", "bs", "bsz", "minibatch", "microbatch"];
    // Of the evaluation, and what is no size.
    const OTHERS: [&str; 14] = [
        "eval",
        "val",
        "valid",
        "validation",
        "test",
        "predict",
        "num",
        "n",
        "norm",
        "steps",
        "accumulation",
        "first",
        "index",
        "id",
    ];
    if name == "-b" {
        return true;
    }
    let words = split_option_name(name);
    let has = |list: &[&str]| words.iter().any(|word| list.contains(&word.as_str()));
    has(&SIZES) && !has(&OTHERS)
}

/// Returns the words of an option, in lower case: `train_batch`, `train-batch` and `trainBatch` have the same.
fn split_option_name(name: &str) -> Vec<String> {
    let last = name.trim_start_matches('-').rsplit('.').next().unwrap_or(name);
    let mut words = vec![String::new()];
    let mut is_after_lower = false;
    for letter in last.chars() {
        let is_separator = matches!(letter, '-' | '_');
        if is_separator || (letter.is_ascii_uppercase() && is_after_lower) {
            words.push(String::new());
        }
        is_after_lower = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        if let (false, Some(word)) = (is_separator, words.last_mut()) {
            word.push(letter.to_ascii_lowercase());
        }
    }
    words
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
            ("$ conda run -n x python train.py --bs 64\n", "python train.py --bs 64"),
            ("$ mpirun -n 4 python train.py\n", "python train.py"),
            (
                "$ accelerate launch --num_processes 4 train.py --lr 1\n",
                "accelerate launch --num_processes 4 train.py --lr 1",
            ),
            ("$ cd x && python train.py\n", "python train.py"),
            ("$ source venv/bin/activate; python train.py; echo done\n", "python train.py"),
            ("$ python -u -m pkg.train --lr 1\n", "python -u -m pkg.train --lr 1"),
            ("$ env A=1 python -X dev train.py\n", "python -X dev train.py"),
            ("$ srun -N 2 --gpus 4 python train.py\n", "python train.py"),
            ("$ nohup python train.py --lr 1 >out.log 2>&1 &\n", "python train.py --lr 1"),
            ("$ python train.py --lr 1&\n", "python train.py --lr 1"),
            ("$ xvfb-run -a python3 train.py\n", "python3 train.py"),
            ("$ python -c 'import train'\n", PLACEHOLDER),
            ("$ python train.py --note 'a; b'\n", PLACEHOLDER),
            ("$ bash run.sh\n", PLACEHOLDER),
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
            ("python fit.py --bs 64", Some(("python fit.py --bs {batch}", 64))),
            ("python fit.py -b 64 --lr 1", Some(("python fit.py -b {batch} --lr 1", 64))),
            (
                "python fit.py --per_device_train_batch_size=4",
                Some(("python fit.py --per_device_train_batch_size={batch}", 4)),
            ),
            (
                "python fit.py --eval_batch_size=8 --batchSize 64 --microBatchSize 3",
                Some((
                    "python fit.py --eval_batch_size=8 --batchSize 64 --microBatchSize {batch}",
                    3,
                )),
            ),
            ("python fit.py --trainBatch 2", Some(("python fit.py --trainBatch {batch}", 2))),
            ("python fit.py --BATCH=16", Some(("python fit.py --BATCH={batch}", 16))),
            (
                "python fit.py --micro_batch_size=2",
                Some(("python fit.py --micro_batch_size={batch}", 2)),
            ),
            ("python fit.py --testBatch 2 --nBatch 3 --batchNorm 1", None),
            ("python fit.py --batch-norm 1 --num_batch 3 --test-batch-size 10", None),
            ("python fit.py --batches many", None),
            ("python batch.py 3", None),
        ] {
            let found = batch_option(command);
            let found = found.as_ref().map(|found| (found.command.as_str(), found.size));
            assert_eq!(found, varied, "{command}");
        }
    }
}
