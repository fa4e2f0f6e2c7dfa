//! [`guarded`]: code of the user, called where a panic must not end a loop.
//!
//! What must stay true: nothing that the user's code makes is called or dropped in a run loop outside of it, not even what
//! a panic carries.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the user; the error is the text of its panic.
pub(crate) fn guarded<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no message").to_owned();
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            // There is no end to it otherwise.
            std::mem::forget(again);
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_panic_is_told_and_what_it_carries_may_panic_as_well() {
        struct Carried(u32);
        impl Drop for Carried {
            fn drop(&mut self) {
                if self.0 > 0 {
                    std::panic::panic_any(Self(self.0 - 1));
                }
            }
        }
        assert_eq!(guarded(|| 7), Ok(7));
        assert_eq!(guarded(|| -> u32 { panic!("a word") }), Err("a word".to_owned()));
        assert_eq!(guarded(|| -> u32 { panic!("number {}", 7) }), Err("number 7".to_owned()));
        assert_eq!(guarded(|| -> u32 { std::panic::panic_any(Carried(3)) }), Err("no message".to_owned()));
    }
}
