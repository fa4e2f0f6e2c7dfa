//! Plain text tables, for people and for logs alike: no colours, no box drawing.

/// Lines up `rows` under `head`, columns two spaces apart.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = head.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let line = |cells: [&str; N]| {
        let cells: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    let mut out = line(head);
    for row in rows {
        out += &line(std::array::from_fn(|column| row[column].as_str()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["redis-6.2".to_owned(), "ok".to_owned()], ["x".to_owned(), "failed".to_owned()]];
        assert_eq!(table(["server", "state"], &rows), "server     state\nredis-6.2  ok\nx          failed\n");
    }
}
