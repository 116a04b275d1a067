// What java.util.regex says: a line in is hex of a pattern and of each text, in UTF-8, with blanks between.  A line out has
// a word for each text: `-` no match anywhere, `f` one that is not the whole text, `m:start-end,…` the groups of a match of
// the whole text; `!` alone for a pattern that does not compile.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

class Matches {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(answer(line.split(" ", -1)));
        }
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    private static String answer(String[] given) {
        try {
            Pattern pattern = Pattern.compile(text(given[0]));
            StringBuilder made = new StringBuilder();
            for (int at = 1; at < given.length; at++) {
                made.append(at > 1 ? " " : "").append(word(pattern, text(given[at])));
            }
            return made.toString();
        } catch (RuntimeException error) {
            // PatternSyntaxException, or NullPointerException: `[a&&]` compiles, and fails when it is used.
            return "!";
        }
    }

    private static String word(Pattern pattern, String text) {
        Matcher matcher = pattern.matcher(text);
        if (!matcher.matches()) {
            return pattern.matcher(text).find() ? "f" : "-";
        }
        StringBuilder made = new StringBuilder("m:");
        for (int group = 0; group <= matcher.groupCount(); group++) {
            made.append(group > 0 ? "," : "");
            made.append(matcher.start(group) == matcher.end(group) ? "" : place(text, matcher.start(group)) + "-" + place(text, matcher.end(group)));
        }
        return made.toString();
    }

    private static int place(String text, int at) {
        return text.codePointCount(0, at);
    }
}
