//! A handler that does not fit is told so in terms of handlers, not of generics.

#[test]
fn a_handler_that_does_not_fit_gets_a_readable_error() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/handlers/*.rs");
}
