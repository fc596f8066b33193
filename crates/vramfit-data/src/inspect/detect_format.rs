//! Files of other formats: recognized, with how to convert them to HDF5.

use std::path::Path;
use std::sync::Arc;

use vramfit_base::{Error, Result};

use crate::hdf5::Container;
use crate::source::{Access, Source, is_zarr_store};

/// Opens an HDF5 file. Other known formats are named in the error.
///
/// # Errors
///
/// `unsupported-feature` when it has another known format; else as [`Source::open`] and [`Container::open`].
pub fn open(path: &Path) -> Result<Container> {
    open_unclosed(path, false)
}

/// Opens an HDF5 file as [`open`] does, which need not have been closed if such files are allowed.
///
/// # Errors
///
/// As [`open`].
pub fn open_unclosed(path: &Path, is_allowed: bool) -> Result<Container> {
    if is_zarr_store(path) {
        return Err(unsupported_format(path, "a Zarr store").hint(
            "copy the arrays with `zarr` and `h5py`: `h5py.File(\"x.h5\", \"w\")[\"x\"] = zarr.open(...)[:]`",
        ));
    }
    let source = Source::open(path, Access::Read)?;
    let mut start = [0; 8];
    let length = source.length().min(8) as usize;
    source.read_at(0, &mut start[..length])?;
    let error = match &start {
        b"\x93NUMPY\x01\x00" | b"\x93NUMPY\x02\x00" | b"\x93NUMPY\x03\x00" => {
            unsupported_format(path, "a NumPy array").hint(format!(
                "convert it: `python -c \"import h5py, numpy; h5py.File('{}', 'w')['x'] = numpy.load('{}', mmap_mode='r')\"`",
                path.with_extension("h5").display(),
                path.display()
            ))
        }
        [b'P', b'K', 3, 4, ..] => unsupported_format(path, "a zip archive (perhaps a NumPy `.npz` file)").hint(format!(
            "convert it: `python -c \"import h5py, numpy; h5py.File('{}', 'w').update(numpy.load('{}'))\"`",
            path.with_extension("h5").display(),
            path.display()
        )),
        [0x1f, 0x8b, ..] => {
            unsupported_format(path, "a gzip archive").hint("decompress it first: `gunzip --keep`")
        }
        [b'C', b'D', b'F', 1 | 2 | 5, ..] => unsupported_format(path, "a classic netCDF file")
            .hint("convert it to netCDF-4, which is HDF5: `nccopy -k nc4 old.nc new.nc`"),
        _ => return Container::open_unclosed(Arc::new(source), is_allowed),
    };
    Err(error)
}

fn unsupported_format(path: &Path, what: &str) -> Error {
    Error::unsupported_feature(format!("`{}` is {what}, not an HDF5 file", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramfit_base::ErrorKind;

    #[test]
    fn other_formats_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        for (start, named) in [
            (&b"\x93NUMPY\x01\x00v"[..], "a NumPy array"),
            (b"PK\x03\x04", "a zip archive"),
            (b"\x1f\x8b\x08", "a gzip archive"),
            (b"CDF\x02", "netCDF"),
        ] {
            std::fs::write(&path, start).unwrap();
            let error = open(&path).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnsupportedFeature);
            assert!(error.message().contains(named), "{error}");
            assert!(error.hint_text().is_some());
        }
        std::fs::write(folder.path().join("zarr.json"), "{}").unwrap();
        assert!(open(folder.path()).unwrap_err().message().contains("Zarr"));
        for (start, kind) in
            [(&b"a text\n"[..], ErrorKind::InvalidFile), (b"", ErrorKind::InvalidFile)]
        {
            std::fs::write(&path, start).unwrap();
            assert_eq!(open(&path).unwrap_err().kind(), kind);
        }
    }
}
