//! What is read, what is refused and in which words, and that page and table agree.

use std::path::Path;

use toml::de::DeValue;

use super::super::{Config, Unless, keys, markdown, starting_file};
use crate::error::ErrorKind;

const MINIMAL_CONFIG: &str = "[data]\npath = \"a.h5\"\n";

fn read(text: &str, options: &[&str]) -> Result<Config, crate::Error> {
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    Config::read(Path::new("some/train.toml"), text, &options)
}

fn refused(text: &str, options: &[&str]) -> (String, String) {
    let error = read(text, options).expect_err(text);
    let hint = error.hint_text().expect("a hint").to_owned();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    (error.message().to_owned(), hint)
}

#[test]
fn what_is_not_written_has_its_usual_value() {
    let config = read(MINIMAL_CONFIG, &[]).expect("enough");
    assert_eq!(config.data.path, Path::new("some/a.h5"));
    assert_eq!(config.data.memory.0, 256 << 20);
    assert_eq!(config.data.sequence_length, None);
    assert_eq!(config.model.hidden_sizes, [128, 128]);
    assert_eq!(config.checkpoint.every_seconds, 600.0);
    let directory = config.training.directory.expect("always one");
    assert_eq!(directory, Path::new("some/runs/train"));
}

#[test]
fn options_win_over_the_file_and_need_no_quotation_marks() {
    let text = format!("{MINIMAL_CONFIG}batch_size = 8\n[model]\nkind = \"mlp\"\n");
    let config = read(
        &text,
        &[
            "data.batch_size=16",
            "data.batch_size = 0x20",
            "data.path=b.h5",
            "model.kind=lstm",
            "model.hidden_sizes=[8, 4]",
            "optimizer.learning_rate=1e-2",
            "optimizer.clip=1",
            "data.memory=64MiB",
            "data.shuffle=false",
        ],
    )
    .expect("all of them can be");
    assert_eq!(config.data.batch_size, 32);
    assert_eq!(config.data.path, Path::new("b.h5"), "not beside the file");
    assert_eq!(config.model.kind, "lstm");
    assert_eq!(config.model.hidden_sizes, [8, 4]);
    assert_eq!(config.model.layers, Some(2));
    assert_eq!(config.optimizer.learning_rate, 0.01);
    assert_eq!(config.optimizer.clip, Some(1.0));
    assert_eq!(config.data.memory.0, 64 << 20);
    assert!(!config.data.shuffle);
}

#[test]
fn what_is_not_known_is_told_with_its_line_and_the_nearest() {
    for (text, message, hint) in [
        (
            "[data]\npath = 'a'\nbatchsize = 3\n",
            "`some/train.toml:3`: there is no key `batchsize` in `[data]`",
            "did you mean `batch_size`?",
        ),
        (
            "[optimizer]\nlr = 3\n",
            "`some/train.toml:2`: there is no key `lr` in `[optimizer]`",
            "did you mean `learning_rate`?",
        ),
        (
            "[model]\nbatch_size = 3\n",
            "`some/train.toml:2`: there is no key `batch_size` in `[model]`",
            "did you mean `batch_size` in `[data]`?",
        ),
        (
            "[model]\nxyzzy = 3\n",
            "`some/train.toml:2`: there is no key `xyzzy` in `[model]`",
            "there are `kind`, `hidden_sizes`, `layers`, `heads`, `dropout`, `dtype`",
        ),
        (
            "# first\n\n[optimiser]\nname = 'sgd'\n",
            "`some/train.toml:3`: there is no table `[optimiser]`",
            "did you mean `[optimizer]`?",
        ),
        (
            "epochs = 3\n",
            "`some/train.toml:1`: `epochs` stands in no table",
            "did you mean `epochs` in `[training]`?",
        ),
        (
            "data = 3\n",
            "`some/train.toml:1`: `data` is no table",
            "write `[data]` on a line of its own, and its keys below",
        ),
        (
            "[training]\nepochs = 3\n",
            "`some/train.toml` has no `path` in `[data]`",
            "add `path = \"train.h5\"`: The HDF5 file",
        ),
    ] {
        assert_eq!(refused(text, &[]), (message.to_owned(), hint.to_owned()));
    }
}

#[test]
fn values_that_cannot_be_are_told_with_those_that_can() {
    for (key, value, message) in [
        (
            "batch_size",
            "0",
            "`0`, and has to be a whole number from 1",
        ),
        (
            "batch_size",
            "8.0",
            "`8.0`, and has to be a whole number from 1",
        ),
        (
            "batch_size",
            "'many'",
            "`'many'`, and has to be a whole number from 1",
        ),
        (
            "validation_share",
            "1",
            "`1`, and has to be a number from 0, below 1",
        ),
        (
            "validation_share",
            "nan",
            "`nan`, and has to be a number from 0, below 1",
        ),
        ("shuffle", "1", "`1`, and has to be `true` or `false`"),
        (
            "memory",
            "'lots'",
            "`'lots'`, and has to be an amount of memory, such as `\"256MiB\"`",
        ),
        (
            "inputs",
            "''",
            "`''`, and has to be a text: the path of a dataset",
        ),
    ] {
        let (found, _) = refused(&format!("{MINIMAL_CONFIG}{key} = {value}\n"), &[]);
        assert_eq!(found, format!("`some/train.toml:3`: `{key}` is {message}"));
    }
    let (message, hint) = refused(MINIMAL_CONFIG, &["model.kind=GRUU"]);
    assert_eq!(
        message,
        "`--set model.kind=GRUU`: `kind` is `\"GRUU\"`, and has to be `mlp`, `gru`, `lstm` or \
         `transformer`"
    );
    assert_eq!(hint, "did you mean `gru`?");
    assert!(
        refused(MINIMAL_CONFIG, &["model.hidden_sizes=[]"])
            .0
            .contains("whole numbers from 1")
    );
    assert!(
        refused(MINIMAL_CONFIG, &["model.hidden_sizes=[8, 0]"])
            .0
            .contains("whole numbers from 1")
    );
}

#[test]
fn options_that_cannot_be_read_say_what_they_should_be() {
    for (option, message, hint) in [
        (
            "batch_size=3",
            "`--set batch_size=3`: there is no key `batch_size`",
            "did you mean `data.batch_size`?",
        ),
        (
            "seed=3",
            "`--set seed=3`: there is no key `seed`",
            "did you mean `data.seed` or `training.seed`?",
        ),
        (
            "data.batch_siz=3",
            "`--set data.batch_siz=3`: there is no key `data.batch_siz`",
            "did you mean `data.batch_size`?",
        ),
        (
            "epochs",
            "`--set epochs` has no `=`",
            "write a key and its value: `--set data.batch_size=64`",
        ),
        (
            "model.hidden_sizes=[8",
            "`--set model.hidden_sizes=[8`: `hidden_sizes` is `[8`, and has to be whole numbers from 1 \
             in brackets, such as `[128, 64]`",
            "such as `hidden_sizes = [128]`",
        ),
    ] {
        assert_eq!(
            refused(MINIMAL_CONFIG, &[option]),
            (message.to_owned(), hint.to_owned())
        );
    }
}

#[test]
fn keys_without_effect_are_refused() {
    for (options, message) in [
        (
            &["data.validation_path=b.h5", "data.validation_share=0.2"][..],
            "`validation_share` has no effect beside `validation_path`",
        ),
        (
            &["data.validation_share=0", "training.stop_after=3"],
            "`stop_after` looks at the validation loss, and no rows validate",
        ),
        (
            &["model.hidden_sizes=[8, 8]", "model.layers=3"],
            "`layers` is 3, and `hidden_sizes` has the widths of 2",
        ),
        (
            &["model.heads=2"],
            "`heads` has no effect on a model of kind `gru`",
        ),
        (
            &["model.kind=transformer", "model.hidden_sizes=[8, 16]"],
            "a transformer has one width, and `hidden_sizes` has several",
        ),
        (
            &["model.kind=transformer", "model.hidden_sizes=[30]"],
            "4 heads do not divide a width of 30",
        ),
        (
            &["optimizer.schedule=warmup_cosine"],
            "`warmup_cosine` needs `warmup_steps`",
        ),
        (
            &["optimizer.warmup_steps=5"],
            "`warmup_steps` has no effect on the schedule `constant`",
        ),
        (
            &["optimizer.name=sgd", "optimizer.weight_decay=0.1"],
            "`weight_decay` has no effect on `sgd`",
        ),
        (
            &["optimizer.momentum=0.1"],
            "`momentum` has no effect on `adamw`",
        ),
    ] {
        let (found, _) = refused(MINIMAL_CONFIG, options);
        assert!(found.ends_with(message), "{found}");
    }
}

#[test]
fn what_is_no_toml_is_told_with_its_line() {
    let error = read("[data]\npath = \n", &[]).expect_err("no value");
    assert_eq!(error.kind(), ErrorKind::InvalidFile);
    assert_eq!(error.message(), "`some/train.toml:2` is no TOML");
    assert!(error.cause_text().is_some());
}

#[test]
fn every_key_has_a_field_and_every_value_of_the_table_can_be() {
    let config = read(MINIMAL_CONFIG, &[]).expect("enough");
    let all = serde_json::to_value(&config).expect("a configuration is data");
    let mut fields = 0;
    for key in keys() {
        assert!(all[key.section].get(key.name).is_some(), "{}", key.dotted());
        let (Unless::Required(text) | Unless::Value(text) | Unless::Nothing(_, text)) = key.unless;
        let value = DeValue::parse(text).expect(text);
        assert!(
            key.form.accept(value.get_ref()).is_some(),
            "{}",
            key.dotted()
        );
        assert!(key.meaning.ends_with('.'), "{}", key.dotted());
        fields += 1;
    }
    let sections = all.as_object().expect("tables").values();
    let known: usize = sections
        .map(|s| s.as_object().expect("a table").len())
        .sum();
    assert_eq!(fields, known, "a field has no key");
}

#[test]
fn what_may_change_is_not_what_decides_the_state() {
    let one = read(MINIMAL_CONFIG, &[]).expect("enough");
    let changed = ["training.epochs=3", "data.path=c.h5", "training.device=cpu"];
    let other = read(MINIMAL_CONFIG, &changed).expect("enough");
    assert_eq!(one.fixed(), other.fixed());
    let other = read(MINIMAL_CONFIG, &["model.dropout=0.5"]).expect("enough");
    assert_ne!(one.fixed(), other.fixed());
}

#[test]
fn the_starting_file_can_be_read_and_its_comments_too() {
    let file = starting_file(&[]);
    read(&file, &[]).expect("it is a file to begin with");
    for line in file
        .lines()
        .filter(|line| line.starts_with('#') && !line.starts_with("# "))
    {
        let value: toml::Table = line[1..].parse().expect(line);
        assert_eq!(value.len(), 1, "{line}");
    }
    for key in keys() {
        assert!(
            file.contains(&format!("{}\n", key.line())),
            "{}",
            key.dotted()
        );
    }
}

#[test]
fn proposed_values_are_lines_of_the_starting_file() {
    let proposed = [("data.path", "\"a.h5\""), ("data.scale", "\"1/255\"")];
    let file = starting_file(&proposed.map(|(name, value)| (name, value.to_owned())));
    let config = read(&file, &[]).expect("it is a file to begin with");
    assert_eq!(config.data.path, Path::new("some/a.h5"));
    assert_eq!(config.data.scale, Some(1.0 / 255.0));
}

#[test]
fn a_factor_is_a_number_or_a_fraction() {
    for (option, scale) in [
        ("data.scale=1/255", 1.0 / 255.0),
        ("data.scale=\"-3 / 4\"", -0.75),
        ("data.scale=0.5", 0.5),
        ("data.scale=2", 2.0),
    ] {
        let config = read(MINIMAL_CONFIG, &[option]).expect(option);
        assert_eq!(config.data.scale, Some(scale), "{option}");
    }
    for option in [
        "data.scale=0",
        "data.scale=1/0",
        "data.scale=a",
        "data.scale=1/",
    ] {
        let (message, hint) = refused(MINIMAL_CONFIG, &[option]);
        assert!(message.contains("has to be a number other than 0, or a fraction"));
        assert_eq!(hint, "such as `scale = \"1/255\"`");
    }
    let (message, _) = refused(MINIMAL_CONFIG, &["data.scale=2", "data.vocabulary=10"]);
    assert!(message.contains("`scale` has no effect on tokens"));
}

/// `UPDATE_DOCS=1 cargo test -p vramfit-core train` writes the page anew.
#[test]
fn the_committed_page_is_made_from_the_table() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/training-config.md"
    );
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, markdown()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == markdown(),
        "docs/reference/training-config.md is not what the table says; write it with UPDATE_DOCS=1"
    );
}
