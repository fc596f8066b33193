//! Reading and validation with their messages, and the documents generated from the table of keys.

use std::path::Path;

use toml::de::DeValue;

use vramfit_base::{Error, ErrorKind};

use crate::{Config, DefaultValue, PythonName, keys, reference_page, template};

const MINIMAL_CONFIG: &str = "[data]\npath = \"a.h5\"\n";

fn read(text: &str, options: &[&str]) -> Result<Config, Error> {
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    Config::read(Path::new("some/train.toml"), text, &options)
}

fn rejected(text: &str, options: &[&str]) -> (String, String) {
    let error = read(text, options).expect_err(text);
    let hint = error.hint_text().expect("a hint").to_owned();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    (error.message().to_owned(), hint)
}

#[test]
fn keys_that_are_not_set_have_defaults() {
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
fn unknown_keys_are_errors_with_line_and_suggestion() {
    for (text, message, hint) in [
        (
            "[data]\npath = 'a'\nbatchsize = 3\n",
            "`some/train.toml:3`: unknown key `batchsize` in `[data]`",
            "did you mean `batch_size`?",
        ),
        (
            "[optimizer]\nlr = 3\n",
            "`some/train.toml:2`: unknown key `lr` in `[optimizer]`",
            "did you mean `learning_rate`?",
        ),
        (
            "[model]\nbatch_size = 3\n",
            "`some/train.toml:2`: unknown key `batch_size` in `[model]`",
            "did you mean `batch_size` in `[data]`?",
        ),
        (
            "[model]\nxyzzy = 3\n",
            "`some/train.toml:2`: unknown key `xyzzy` in `[model]`",
            "the keys are `kind`, `arguments`, `hidden_sizes`, `layers`, `heads`, `dropout`, `dtype`",
        ),
        (
            "# first\n\n[optimiser]\nname = 'sgd'\n",
            "`some/train.toml:3`: unknown table `[optimiser]`",
            "did you mean `[optimizer]`?",
        ),
        (
            "epochs = 3\n",
            "`some/train.toml:1`: `epochs` is outside of any table",
            "did you mean `epochs` in `[training]`?",
        ),
        (
            "data = 3\n",
            "`some/train.toml:1`: `data` is not a table",
            "write `[data]` on a line of its own, and its keys below",
        ),
        (
            "[training]\nepochs = 3\n",
            "`some/train.toml` has no `path` in `[data]`",
            "add `path = \"train.h5\"`: HDF5 file",
        ),
    ] {
        assert_eq!(rejected(text, &[]), (message.to_owned(), hint.to_owned()));
    }
}

#[test]
fn invalid_values_are_errors_with_the_valid_ones() {
    for (key, value, message) in [
        ("batch_size", "0", "`0`, but must be an integer of at least 1"),
        ("batch_size", "8.0", "`8.0`, but must be an integer of at least 1"),
        ("batch_size", "'many'", "`'many'`, but must be an integer of at least 1"),
        ("validation_fraction", "1", "`1`, but must be a number of at least 0 and below 1"),
        ("validation_fraction", "nan", "`nan`, but must be a number of at least 0 and below 1"),
        ("shuffle", "1", "`1`, but must be `true` or `false`"),
        ("memory", "'lots'", "`'lots'`, but must be a size, such as `\"256MiB\"`"),
        ("inputs", "''", "`''`, but must be the path of a dataset"),
    ] {
        let (found, _) = rejected(&format!("{MINIMAL_CONFIG}{key} = {value}\n"), &[]);
        assert_eq!(found, format!("`some/train.toml:3`: `{key}` is {message}"));
    }
    let (message, hint) = rejected(MINIMAL_CONFIG, &["model.kind=GRUU"]);
    assert_eq!(
        message,
        "`--set model.kind=GRUU`: `kind` is `\"GRUU\"`, but must be `mlp`, `cnn`, `gru`, `lstm`, \
         `transformer`, or your own such as `\"my_model.py:Net\"`"
    );
    assert_eq!(hint, "did you mean `gru`?");
    assert!(
        rejected(MINIMAL_CONFIG, &["model.hidden_sizes=[]"])
            .0
            .contains("a list of positive integers")
    );
    assert!(
        rejected(MINIMAL_CONFIG, &["model.hidden_sizes=[8, 0]"])
            .0
            .contains("a list of positive integers")
    );
}

#[test]
fn invalid_overrides_are_errors_with_a_hint() {
    for (option, message, hint) in [
        (
            "batch_size=3",
            "`--set batch_size=3`: unknown key `batch_size`",
            "did you mean `data.batch_size`?",
        ),
        (
            "seed=3",
            "`--set seed=3`: unknown key `seed`",
            "did you mean `data.seed` or `training.seed`?",
        ),
        (
            "data.batch_siz=3",
            "`--set data.batch_siz=3`: unknown key `data.batch_siz`",
            "did you mean `data.batch_size`?",
        ),
        (
            "epochs",
            "`--set epochs` has no `=`",
            "write a key and its value: `--set data.batch_size=64`",
        ),
        (
            "model.hidden_sizes=[8",
            "`--set model.hidden_sizes=[8`: `hidden_sizes` is `[8`, but must be a list of positive integers, \
             such as `[128, 64]`",
            "for example `hidden_sizes = [128]`",
        ),
    ] {
        assert_eq!(rejected(MINIMAL_CONFIG, &[option]), (message.to_owned(), hint.to_owned()));
    }
}

#[test]
fn keys_without_effect_are_errors() {
    for (options, message) in [
        (
            &["data.validation_path=b.h5", "data.validation_fraction=0.2"][..],
            "`validation_fraction` has no effect with `validation_path`",
        ),
        (
            &["data.validation_fraction=0", "training.stop_after=3"],
            "`stop_after` needs an evaluation, but there is no validation data",
        ),
        (
            &["data.validation_fraction=0", "training.best_by=max accuracy"],
            "`best_by` needs an evaluation, but there is no validation data",
        ),
        (
            &["training.best_by=accuracy"],
            "`best_by` is `accuracy`, but must be `min` or `max` and a metric",
        ),
        (
            &["data.vocabulary=10", "data.normalize=both"],
            "tokens cannot be normalized, and `vocabulary` makes the inputs tokens",
        ),
        (
            &["data.scale=2", "data.normalize=inputs"],
            "`scale` has no effect with `normalize`, which rescales the inputs, too",
        ),
        (&["model.arguments={ width = 3 }"], "`arguments` has no effect on a model of kind `gru`"),
        (
            &["model.kind=my.py:Net", "model.dropout=0.1"],
            "`dropout` has no effect on `Net`, a model of your own",
        ),
        (
            &["optimizer.plateau_patience=2"],
            "`plateau_patience` has no effect on the schedule `constant`",
        ),
        (
            &["optimizer.name=adam", "optimizer.weight_decay_mask=matrices"],
            "`weight_decay_mask` has no effect on `adam`",
        ),
        (
            &["model.hidden_sizes=[8, 8]", "model.layers=3"],
            "`layers` is 3, but `hidden_sizes` has 2 widths",
        ),
        (&["model.heads=2"], "`heads` has no effect on a model of kind `gru`"),
        (
            &["model.kind=transformer", "model.hidden_sizes=[8, 16]"],
            "a transformer has a single width, but `hidden_sizes` has several",
        ),
        (
            &["model.kind=transformer", "model.hidden_sizes=[30]"],
            "a width of 30 is not divisible by 4 heads",
        ),
        (&["optimizer.schedule=warmup_cosine"], "`warmup_cosine` needs `warmup_steps`"),
        (&["optimizer.warmup_steps=5"], "`warmup_steps` has no effect on the schedule `constant`"),
        (
            &["optimizer.name=sgd", "optimizer.weight_decay=0.1"],
            "`weight_decay` has no effect on `sgd`",
        ),
        (&["optimizer.momentum=0.1"], "`momentum` has no effect on `adamw`"),
    ] {
        let (found, _) = rejected(MINIMAL_CONFIG, options);
        assert!(found.ends_with(message), "{found}");
    }
}

#[test]
fn invalid_toml_is_an_error_with_its_line() {
    let error = read("[data]\npath = \n", &[]).expect_err("no value");
    assert_eq!(error.kind(), ErrorKind::InvalidFile);
    assert_eq!(error.message(), "`some/train.toml:2` is not valid TOML");
    assert!(error.cause_text().is_some());
}

#[test]
fn every_key_has_a_field_and_every_default_is_valid() {
    let config = read(MINIMAL_CONFIG, &[]).expect("enough");
    let all = serde_json::to_value(&config).expect("a configuration is data");
    let mut fields = 0;
    for key in keys() {
        assert!(all[key.section].get(key.name).is_some(), "{}", key.dotted());
        let (DefaultValue::Required(text)
        | DefaultValue::Value(text)
        | DefaultValue::Unset(_, text)) = key.default;
        let value = DeValue::parse(text).expect(text);
        assert!(key.value_type.parse(value.get_ref()).is_some(), "{}", key.dotted());
        assert!(key.description.ends_with('.'), "{}", key.dotted());
        fields += 1;
    }
    let sections = all.as_object().expect("tables").values();
    let known: usize = sections.map(|s| s.as_object().expect("a table").len()).sum();
    assert_eq!(fields, known, "a field has no key");
}

#[test]
fn resumable_keys_are_not_saved_with_checkpoints() {
    let one = read(MINIMAL_CONFIG, &[]).expect("enough");
    let changed = ["training.epochs=3", "data.path=c.h5", "training.device=cpu"];
    let other = read(MINIMAL_CONFIG, &changed).expect("enough");
    assert_eq!(one.checkpoint_config(), other.checkpoint_config());
    let other = read(MINIMAL_CONFIG, &["model.dropout=0.5"]).expect("enough");
    assert_ne!(one.checkpoint_config(), other.checkpoint_config());
}

#[test]
fn a_checkpoint_does_not_depend_on_where_the_files_of_a_run_are() {
    let text = format!("{MINIMAL_CONFIG}[model]\nkind = \"models/my.py:Net\"\n");
    let from = |file: &str| Config::read(Path::new(file), &text, &[]).expect(file);
    let (one, other) = (from("a/train.toml"), from("b/c/train.toml"));
    assert_eq!(one.model.kind, "a/models/my.py:Net");
    assert_eq!(one.model.own().expect("it is one").location, "a/models/my.py");
    assert_eq!(one.checkpoint_config(), other.checkpoint_config());
    let set = read(&text, &["model.kind=other/my.py:Net"]).expect("a file");
    assert_eq!(set.model.kind, "other/my.py:Net", "relative to the current directory");
    let module = read(&text, &["model.kind=package.models:Net"]).expect("a module");
    assert_ne!(one.checkpoint_config(), module.checkpoint_config());
}

#[test]
fn a_name_in_python_is_a_file_or_a_module_and_an_identifier() {
    for text in ["a.py:Net", "dir with space/a.py:net_2", "package.module:f", "C:/a.py:_x"] {
        let found = PythonName::parse(text).expect(text);
        assert_eq!(format!("{}:{}", found.location, found.name), text);
        assert_eq!(found.is_in_file(), text.contains(".py:"), "{text}");
    }
    for text in ["Net", "a.py", "a.py:", ":Net", ".py:Net", "a.py:3", "a b:c", "a..b:c", "a:b c"] {
        assert_eq!(PythonName::parse(text), None, "{text}");
    }
}

#[test]
fn arguments_are_passed_on_as_they_are() {
    let text = format!(
        "{MINIMAL_CONFIG}[model]\nkind = \"a.py:f\"\n\
         arguments = {{ a = 1, b = [2.5, true], c = {{ d = \"e\" }} }}\n"
    );
    let config = read(&text, &[]).expect("valid");
    let expected = serde_json::json!({ "a": 1, "b": [2.5, true], "c": { "d": "e" } });
    assert_eq!(serde_json::Value::Object(config.model.arguments.expect("set")), expected);
    let (message, _) = rejected(&text, &["model.arguments={ a = 2026-01-01 }"]);
    assert!(message.contains("must be a table"), "{message}");
}

#[test]
fn a_limit_of_steps_takes_the_place_of_the_default_of_epochs() {
    let total = |options: &[&str]| read(MINIMAL_CONFIG, options).expect("valid").total_steps(100);
    assert_eq!(total(&[]), 1000);
    assert_eq!(total(&["training.steps=5000"]), 5000);
    assert_eq!(total(&["training.steps=5000", "training.epochs=3"]), 300);
    assert_eq!(total(&["training.steps=250", "training.epochs=3"]), 250);
    assert_eq!(total(&["training.steps=17", "training.steps_per_dispatch=4"]), 20);
}

#[test]
fn the_template_can_be_read_and_its_comments_too() {
    let file = template(&[]);
    read(&file, &[]).expect("it is a file to begin with");
    for line in file.lines().filter(|line| line.starts_with('#') && !line.starts_with("# ")) {
        let value: toml::Table = line[1..].parse().expect(line);
        assert_eq!(value.len(), 1, "{line}");
    }
    for key in keys() {
        assert!(file.contains(&format!("{}\n", key.line())), "{}", key.dotted());
    }
}

#[test]
fn proposed_values_are_in_the_template() {
    let proposed = [("data.path", "\"a.h5\""), ("data.scale", "\"1/255\"")];
    let file = template(&proposed.map(|(name, value)| (name, value.to_owned())));
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
    for option in ["data.scale=0", "data.scale=1/0", "data.scale=a", "data.scale=1/"] {
        let (message, hint) = rejected(MINIMAL_CONFIG, &[option]);
        assert!(message.contains("must be a non-zero number, or a fraction"));
        assert_eq!(hint, "for example `scale = \"1/255\"`");
    }
    let (message, _) = rejected(MINIMAL_CONFIG, &["data.scale=2", "data.vocabulary=10"]);
    assert!(message.contains("`scale` has no effect with `vocabulary`"));
}

/// `UPDATE_DOCS=1 cargo test -p vramfit-train` rewrites the page.
#[test]
fn the_committed_page_is_generated_from_the_table() {
    crate::testing::check_generated("training-config.md", &reference_page());
}
