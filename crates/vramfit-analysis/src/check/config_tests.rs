use super::*;
use crate::error::ErrorKind;

fn read(text: &str) -> Result<Option<CheckConfig>> {
    CheckConfig::read(Path::new("vramfit.toml"), text)
}

fn entries(text: &str) -> Vec<Entry> {
    read(text).expect("valid").expect("has entries").entries
}

#[test]
fn entries_have_the_defaults_of_the_table() {
    let entries = entries(
        r#"
        [check]
        gpus = ["l4", "h100-80gx8"]
        tolerance = "1MiB"
        env = { A = "1", B = "2" }

        [[check.entry]]
        name = "train"
        command = "python 'train it.py' --batch 8"
        max = "20GiB"
        env = { B = "3" }

        [[check.entry]]
        name = "step"
        function = "pkg.model:Model.step"
        arguments = [{ w = "float32[8,8]" }, "int32[]"]
        gpus = ["t4"]
        spare = "5%"
        tolerance = 0
        "#,
    );
    let train = &entries[0];
    let Program::Command { words, steps, step } = &train.program else {
        panic!("a command");
    };
    assert_eq!(words, &["python", "train it.py", "--batch", "8"]);
    assert_eq!(*steps, StepLimit::Calls(FEW_CALLS));
    assert_eq!(*step, None);
    assert_eq!(train.gpus.len(), 2);
    assert_eq!(train.limits.max, Some(Bytes(20 << 30)));
    assert_eq!(train.limits.tolerance, Amount::Bytes(1 << 20));
    assert_eq!(train.env["A"], "1");
    assert_eq!(train.env["B"], "3");
    let step = &entries[1];
    assert_eq!(step.limits.tolerance, Amount::Bytes(0));
    assert_eq!(step.limits.spare, Some(Amount::Percent(5.0)));
    assert!(
        matches!(&step.program, Program::Function { function, .. } if function == "pkg.model:Model.step")
    );
}

#[test]
fn pyproject_has_its_own_table_and_others_are_left_alone() {
    let file = Path::new("a/pyproject.toml");
    let entry = "[[tool.vramfit.check.entry]]\nname = \"a\"\ncommand = \"a.py\"\ngpus = [\"t4\"]\n";
    let text = format!("[project]\nname = \"x\"\n[tool.ruff]\nline-length = 100\n{entry}");
    let config = CheckConfig::read(file, &text).expect("valid");
    assert_eq!(config.expect("has entries").entries.len(), 1);
    assert_eq!(CheckConfig::read(file, "[project]\nname = \"x\"\n").expect("valid"), None);
    assert_eq!(read("").expect("valid"), None);
}

#[test]
fn mistakes_name_the_line_or_the_entry() {
    let entry = |keys: &str| format!("[[check.entry]]\nname = \"a\"\n{keys}\n");
    let gpus = "gpus = [\"t4\"]";
    let complete = |keys: &str| entry(&format!("command = \"a\"\n{gpus}\n{keys}"));
    let check = |text: &str, kind: ErrorKind, part: &str| {
        let error = read(text).expect_err(part);
        assert_eq!(error.kind(), kind, "{part}: {error}");
        assert!(format!("{error}").contains(part), "{part}: {error}");
    };
    for (text, part) in [
        ("[check]\n".to_owned(), "has no entries"),
        ("[chek]\n".to_owned(), "unknown key `chek`"),
        (entry("comand = 3"), "vramfit.toml:3`: unknown key `comand`"),
        (entry("command = 3"), "vramfit.toml:3`"),
        (entry("tolerance = \"often\""), "not an amount of memory"),
        (entry(gpus), "neither `command` nor `function`"),
        (entry("command = \"a\""), "no GPU to measure on"),
        (entry("command = \"'a\"\ngpus = [\"t4\"]"), "quote"),
        (entry("function = \"a.b\""), "`module:name`"),
        (entry("function = \"a:b\"\nsteps = 3"), "`steps`"),
        (entry("command = \"a\"\nfunction = \"a:b\""), "both"),
        (entry("command = \"a\"\narguments = []"), "`arguments`"),
        (entry("command = \"a\"\nsteps = 0"), "number of steps `0` is out of range"),
        (complete("max = \"5%\""), "`max`"),
        (complete("fraction = 2.0"), "`fraction`"),
        (complete("hosts = 0"), "`hosts`"),
        ("[[check.entry]]\nname = \"a b\"\ncommand = \"a\"".to_owned(), "the name is not valid"),
        (complete("").repeat(2), "two entries called `a`"),
    ] {
        check(&text, ErrorKind::InvalidArgument, part);
    }
    let message = "vramfit.toml:1` is not valid TOML";
    check("[check\n", ErrorKind::InvalidFile, message);
    let unknown = entry("command = \"a\"\ngpus = [\"nope\"]");
    check(&unknown, ErrorKind::UnknownGpu, "entry `a`");
}
