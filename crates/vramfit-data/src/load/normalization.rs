//! Normalization of a column: each feature less its mean, divided by its standard deviation.

use vramfit_base::{Error, Result};

use crate::hdf5::Scalar;

/// A smaller deviation, for its mean, is none: doubles have sixteen digits.
const MIN_RELATIVE_STD: f64 = 1e-14;

/// Means and standard deviations of the elements of the last axis of a row; one of each if a row is a number.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalization {
    mean: Vec<f64>,
    /// What a number less its mean is multiplied by: 1 where all numbers are the same.
    scale: Vec<f64>,
}

impl Normalization {
    /// Makes a normalization. A standard deviation of 0 counts as 1.
    ///
    /// # Errors
    /// `invalid-argument` when there are not as many means as deviations, or one of them is not a number to use.
    pub fn new(mean: Vec<f64>, std: &[f64]) -> Result<Normalization> {
        let invalid = |what: String| Err(Error::invalid_argument(what));
        if mean.len() != std.len() || mean.is_empty() {
            return invalid(format!("there are {} means and {} deviations", mean.len(), std.len()));
        }
        if let Some(number) = mean.iter().find(|number| !number.is_finite()) {
            return invalid(format!("the mean {number} is not finite"));
        }
        if let Some(number) = std.iter().find(|number| !number.is_finite() || **number < 0.0) {
            return invalid(format!("the standard deviation {number} is not zero or more"));
        }
        // A deviation that is lost in the rounding of its mean is that of a constant.
        let is_constant = |(std, mean): (&f64, &f64)| {
            *std <= MIN_RELATIVE_STD * mean.abs() || !std.recip().is_finite()
        };
        let pairs = std.iter().zip(&mean);
        let scale = pairs.map(|pair| if is_constant(pair) { 1.0 } else { pair.0.recip() });
        Ok(Normalization { scale: scale.collect(), mean })
    }

    /// Returns the numbers that decide the result.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.mean.iter().chain(&self.scale).map(|number| number.to_bits())
    }

    /// Checks that it is one of rows of a type and shape.
    ///
    /// # Errors
    /// `invalid-argument` when rows are not floats, or have another number of features.
    pub(super) fn ensure_fits(&self, name: &str, scalar: Scalar, shape: &[u64]) -> Result<()> {
        if !scalar.is_float() {
            return Err(Error::invalid_argument(format!(
                "`{name}` is {}, and normalized numbers are floats",
                scalar.name()
            ))
            .hint(format!("convert it: `dtype={{\"{name}\": \"float32\"}}`")));
        }
        let features = shape.last().copied().unwrap_or(1);
        if self.mean.len() as u64 != features && self.mean.len() != 1 {
            return Err(Error::invalid_argument(format!(
                "`{name}` has {features} features, and its normalization has {}",
                self.mean.len()
            ))
            .hint("use one mean and deviation for each element of the last axis, or one for all"));
        }
        Ok(())
    }

    /// Normalizes doubles in place: those of whole rows.
    pub(super) fn apply(&self, numbers: &mut [[u8; 8]]) {
        for features in numbers.chunks_mut(self.mean.len()) {
            let parameters = self.mean.iter().zip(&self.scale);
            for (bytes, (mean, scale)) in features.iter_mut().zip(parameters) {
                *bytes = ((f64::from_le_bytes(*bytes) - mean) * scale).to_le_bytes();
            }
        }
    }
}
