//! [`SettingsError`]: which variables cannot be used, why, and what to write instead.
//!
//! What must stay true: no text holds the value of a variable that may be a secret.

use std::fmt;

/// Variables that cannot be used: all of them, not only the first. The text names each, says what is wrong with it and what
/// to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    problems: Vec<SettingProblem>,
}

/// What is wrong with one variable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SettingProblem {
    /// The variable's full name; for values that do not go together, the names with commas between.
    pub variable: String,
    /// What is wrong and what to write, without secrets.
    pub problem: String,
}

impl SettingsError {
    pub(super) fn new(problems: Vec<SettingProblem>) -> Self {
        Self { problems }
    }

    /// One for each variable.
    pub fn problems(&self) -> &[SettingProblem] {
        &self.problems
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, SettingProblem { variable, problem }) in self.problems.iter().enumerate() {
            let separator = if number == 0 { "" } else { "; " };
            write!(f, "{separator}{variable}: {problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SettingsError {}
