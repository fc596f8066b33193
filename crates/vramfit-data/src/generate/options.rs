//! What is to be generated, checked and completed with what was not said.

use vramfit_base::{Bytes, Error, Result};

use crate::hdf5::path::list_names;
use crate::write::{Compression, Number, Storage};

/// A kind of data with its sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Series of vectors, with numbers to predict from each.
    Sequences {
        /// Steps of a series.
        length: u64,
        /// Numbers of a step.
        features: u64,
        /// Numbers to predict.
        targets: u64,
    },
    /// Vectors with a label.
    Tabular {
        /// Numbers of a vector.
        features: u64,
    },
    /// Square pictures in three colors, with a label.
    Images {
        /// Pixels of a side.
        size: u64,
    },
    /// Texts of made-up words.
    Tokens {
        /// Words of a text.
        length: u64,
        /// Different words.
        vocabulary: u64,
    },
}

/// What to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenerateOptions {
    /// The kind of data.
    pub kind: Kind,
    /// Rows.
    pub samples: u64,
    /// Decides every number.
    pub seed: u64,
    /// The type of the numbers, or the usual one of the kind.
    pub number: Option<Number>,
    /// How chunks are compressed.
    pub compression: Compression,
    /// Rows in a chunk. Without it rows are in chunks only where they are compressed.
    pub chunk_rows: Option<u64>,
    /// Write rows in the order of their labels: the hardest case for a shuffle.
    pub sort_by_label: bool,
}

/// Decoded bytes of a chunk, where nothing was said. Large enough that a disk reads chunks in any order
/// at half its speed or more, small enough that a window of a shuffle holds many.
const CHUNK_BYTES: u64 = 256 << 10;

/// Labels of the kinds that have some.
pub const CLASSES: u64 = 10;

impl Kind {
    /// Returns the name of the kind.
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Sequences { .. } => "sequences",
            Kind::Tabular { .. } => "tabular",
            Kind::Images { .. } => "images",
            Kind::Tokens { .. } => "tokens",
        }
    }

    /// Returns the types of numbers that it comes in, the usual one first.
    pub fn numbers(&self) -> &'static [Number] {
        match self {
            Kind::Sequences { .. } | Kind::Tabular { .. } => {
                &[Number::F32, Number::F16, Number::F64]
            }
            Kind::Images { .. } => &[Number::U8, Number::F32, Number::F16],
            Kind::Tokens { .. } => &[Number::I32, Number::U16, Number::I64],
        }
    }

    /// Returns `true` if each row has a label.
    fn has_labels(&self) -> bool {
        matches!(self, Kind::Tabular { .. } | Kind::Images { .. })
    }

    fn sizes(&self) -> Vec<(&'static str, u64)> {
        match *self {
            Kind::Sequences { length, features, targets } => {
                vec![("length", length), ("features", features), ("targets", targets)]
            }
            Kind::Tabular { features } => vec![("features", features)],
            Kind::Images { size } => vec![("image-size", size)],
            Kind::Tokens { length, vocabulary } => {
                vec![("length", length), ("vocabulary", vocabulary)]
            }
        }
    }

    /// Returns the numbers of a row in its largest dataset.
    fn row_numbers(&self) -> u64 {
        match *self {
            Kind::Sequences { length, features, .. } => length * features,
            Kind::Tabular { features } => features,
            Kind::Images { size } => size * size * 3,
            Kind::Tokens { length, .. } => length,
        }
    }
}

impl GenerateOptions {
    /// Rejects what cannot be generated.
    ///
    /// # Errors
    /// `invalid-argument`, naming the option.
    pub fn check(&self) -> Result<()> {
        let refuse = |message: String, hint: &str| Err(Error::invalid_argument(message).hint(hint));
        let (samples, seed, kind) = (self.samples, self.seed, self.kind.name());
        if samples == 0 {
            return Err(Error::invalid_argument("`--samples` must be at least 1"));
        }
        if samples > 1 << 40 {
            return refuse(format!("`--samples {samples}` is too large"), "the maximum is 2^40");
        }
        if seed > i64::MAX as u64 {
            return refuse(format!("`--seed {seed}` is too large"), "the maximum is 2^63 - 1");
        }
        for (option, size) in self.kind.sizes() {
            if !(1..=1 << 20).contains(&size) {
                return refuse(format!("`--{option} {size}` is out of range"), "use 1 to 1048576");
            }
        }
        if let Kind::Images { size } = self.kind
            && !(4..=8192).contains(&size)
        {
            return refuse(format!("`--image-size {size}` is out of range"), "use 4 to 8192");
        }
        let number = self.number();
        let numbers = self.kind.numbers();
        if !numbers.contains(&number) {
            let names = list_names(numbers.iter().map(|number| number.name()), numbers.len());
            return refuse(
                format!("{kind} do not support the data type `{}`", number.name()),
                &format!("use one of {}", names.unwrap_or_default()),
            );
        }
        if let Kind::Tokens { vocabulary, .. } = self.kind
            && number == Number::U16
            && vocabulary > 1 << 16
        {
            let message = format!("a vocabulary of {vocabulary} exceeds `uint16`");
            return refuse(message, "add `--dtype int32`");
        }
        if self.sort_by_label && !self.kind.has_labels() {
            let message = format!("{kind} have no labels to sort by");
            return refuse(message, "`tabular` and `images` have labels");
        }
        if self.chunk_rows == Some(0) {
            return Err(Error::invalid_argument("`--chunk-rows` must be at least 1"));
        }
        let row = self.kind.row_numbers() * number.size() as u64;
        if row > 1 << 30 {
            let message = format!("a sample of {} is too large", Bytes(row));
            return refuse(
                message,
                "the maximum is 1.0 GiB; use a smaller `--length` or `--features`",
            );
        }
        Ok(())
    }

    /// Returns the type of the numbers.
    pub fn number(&self) -> Number {
        self.number.unwrap_or(self.kind.numbers()[0])
    }

    /// Returns how rows are stored.
    pub(super) fn storage(&self) -> Storage {
        let row_bytes = self.kind.row_numbers() * self.number().size() as u64;
        let usual = (CHUNK_BYTES / row_bytes.max(1)).max(1);
        match (self.compression, self.chunk_rows) {
            (Compression::None, None) => Storage::Contiguous,
            (compression, rows) => Storage::Chunked {
                // A power of two divides evenly into batches.
                rows: rows.unwrap_or(1 << usual.ilog2()).min(self.samples),
                compression,
            },
        }
    }
}
