//! What is rejected, and with which message.

use vramfit_base::{Bytes, ErrorKind};
use vramfit_data::hdf5::Scalar;
use vramfit_data::load::{Loader, LoaderOptions};
use vramfit_data::order::{RemainderPolicy, ShardOptions};

use super::files::*;

#[test]
fn a_file_that_changes_meanwhile_is_an_error_and_not_a_signal() {
    let directory = tempfile::tempdir().unwrap();
    for (x, y) in storages() {
        let path = file(directory.path(), x, y);
        let mut loader = Loader::open(request(&path)).unwrap();
        loader.start(0, 0).unwrap();
        drop(next(&mut loader).unwrap());
        let state = loader.state();
        let whole = std::fs::metadata(&path).unwrap().len();
        let open = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        open.set_len(whole / 2).unwrap();
        // What was read before comes first, and the next epoch fails in any case.
        let failed = loop {
            match next(&mut loader) {
                Ok(Some(_)) => {}
                Ok(None) => break loader.start(1, 0).unwrap_err(),
                Err(error) => break error,
            }
        };
        assert_eq!(failed.kind(), ErrorKind::FileChanged, "{failed}");
        drop(loader);

        // Written anew, with the same content.
        file(directory.path(), x, y);
        let mut other = Loader::open(request(&path)).unwrap();
        assert_eq!(other.restore(&state, false).unwrap(), None);
        file(directory.path(), y, x);
        let mut other = Loader::open(request(&path)).unwrap();
        if x != y {
            let error = other.restore(&state, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::FileChanged);
            let note = other.restore(&state, true).unwrap();
            assert_eq!(note.as_deref(), Some(error.message()));
        }
    }
}

#[test]
fn what_cannot_be_is_refused_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), gzip(10), gzip(10));
    let refused = |change: fn(&mut LoaderOptions)| {
        let mut wanted = request(&path);
        change(&mut wanted);
        let error = Loader::open(wanted).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string().replace(&path.display().to_string(), "FILE");
        (text, error.hint_text().unwrap_or_default().to_owned())
    };
    let (text, hint) = refused(|it| it.columns = vec!["group/z".into()]);
    assert_eq!(text, "`FILE` contains no `group/z`: `z` does not exist");
    assert_eq!(hint, "did you mean `group/y`?");
    let (text, _) = refused(|it| it.columns = vec!["x".into(), "x".into()]);
    assert_eq!(text, "dataset `x` was given twice");
    let (text, _) = refused(|it| {
        it.batch_size = 2000;
        it.budget = Bytes(4 << 20);
        it.remainder = RemainderPolicy::Drop;
    });
    assert!(text.starts_with("a batch size of 2000 exceeds the 1003"));
    let (text, _) = refused(|it| it.batch_size = 0);
    assert_eq!(text, "the batch size is 0");
    let (text, hint) = refused(|it| it.shard = ShardOptions { index: 0, count: 3 });
    assert!(text.contains("cannot be divided equally"), "{text}");
    assert_eq!(hint, "use a batch size of 33");
    let (text, _) = refused(|it| {
        it.stacked_batches = Some(40);
        it.budget = Bytes(4 << 20);
        it.remainder = RemainderPolicy::Drop;
    });
    assert!(text.starts_with("a stack of 40 batches of 32 rows"), "{text}");
}

#[test]
fn numbers_of_64_bits_are_narrowed_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(directory.path(), gzip(10), gzip(10));
    let mut wanted = request(&path);
    wanted.narrow = true;
    let loader = Loader::open(wanted).unwrap();
    assert_eq!(loader.columns()[1].scalar(), Scalar::Int32);
    assert_eq!(loader.plan().conversions, ["`group/y` from int64 to int32"]);
    let text = loader.plan().to_text();
    assert!(text.contains("types: `group/y` from int64 to int32"));
}
