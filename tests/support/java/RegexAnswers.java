import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Answers questions about regular expressions, one a line: pattern, replacement and text, in hexadecimal UTF-8 between
 * tabs. The answer: "refused", or whether the pattern is found, whether it fits the whole text, the replaced text or
 * "-", and the groups of the first match, "-" for one that took no part. `make_answers.py` asks.
 */
public class RegexAnswers {
  private static final HexFormat HEX = HexFormat.of();

  private static String decode(String field) {
    return new String(HEX.parseHex(field), StandardCharsets.UTF_8);
  }

  private static String encode(String text) {
    return text == null ? "-" : "=" + HEX.formatHex(text.getBytes(StandardCharsets.UTF_8));
  }

  public static void main(String[] arguments) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] fields = line.split("\t", -1);
      System.out.println(answer(decode(fields[0]), decode(fields[1]), decode(fields[2])));
    }
  }

  private static String answer(String pattern, String replacement, String text) {
    try {
      Matcher matcher = Pattern.compile(pattern).matcher(text);
      boolean fits = matcher.matches();
      matcher.reset();
      boolean found = matcher.find();
      StringBuilder groups = new StringBuilder();
      for (int i = 1; found && i <= matcher.groupCount(); i++) {
        groups.append('\t').append(encode(matcher.group(i)));
      }
      return found + "\t" + fits + "\t" + replaced(pattern, replacement, text) + groups;
    } catch (IllegalArgumentException e) { // of a pattern: PatternSyntaxException is one
      return "refused";
    }
  }

  private static String replaced(String pattern, String replacement, String text) {
    try {
      return encode(Pattern.compile(pattern).matcher(text).replaceAll(replacement));
    } catch (IllegalArgumentException | IndexOutOfBoundsException e) {
      return "-";
    }
  }
}
